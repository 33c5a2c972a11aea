"""The simulated fleet: two nodes with four engines each, their memory and links, and the served models.

The constants are from the research on advisories (§1); nodes, memory, and links are SYMPHONY's testbed (§4).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from simulator.engine_models.engine_profile import EngineProfile

NODES = 2
ENGINES_PER_NODE = 4
ENGINES = NODES * ENGINES_PER_NODE
MEMORY_BYTES_PER_S = 1.4e12
LAYER_SHARE = 1 / 32
"""Share of a step that runs after the last layer's cache has arrived, if loads overlap with computation."""
COMPRESSION = 3.5
DECOMPRESS_S_PER_TOKEN = 10e-6


_8B = EngineProfile(
    prefill_base_s=0.0,
    prefill_per_token_s=0.11e-3,
    prefill_per_token_squared_s=3e-9,
    prefill_per_hit_token_s=0.0,
    step_base_s=0.012,
    step_per_sequence_s=60e-6,
    step_per_context_token_s=131_072 / MEMORY_BYTES_PER_S,
    block_tokens=1,
    num_blocks=412_000,
    max_running=256,
    max_batched_tokens=2048,
    kv_bytes_per_token=131_072,
)
SERVED_MODELS = {
    "8b": _8B,
    "13b": replace(
        _8B,
        prefill_per_token_s=0.19e-3,
        step_base_s=0.018,
        step_per_context_token_s=819_200 / MEMORY_BYTES_PER_S,
        num_blocks=53_700,
        kv_bytes_per_token=819_200,
    ),
}
"""Engines by served model. A block is a token here: memory is counted in tokens."""
MAX_CONTEXT = {"8b": 128_000, "13b": 32_000}
"""Longest context of a conversation, in tokens."""


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and links of the nodes."""

    dram_bytes: float = 200e9
    """DRAM for KV caches, per node."""
    pcie_bytes_per_s: float = 22e9
    """PCIe bandwidth per engine and direction."""
    nic_bytes_per_s: float = 11e9
    """Network bandwidth per node and direction."""
    disk_bytes_per_s: float = 4e9
    """Disk bandwidth per node, for reads and writes together."""
