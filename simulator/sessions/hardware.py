"""The simulated fleet: two nodes with four engines each, their memory and links, and the served models.

The constants are from the research on advisories (§1); nodes, memory, and links are SYMPHONY's testbed (§4).
"""

from __future__ import annotations

import msgspec

NODES = 2
ENGINES_PER_NODE = 4
ENGINES = NODES * ENGINES_PER_NODE
MEMORY_BYTES_PER_S = 1.4e12
CHUNK_TOKENS = 2048
MAX_BATCH = 256
LAYER_SHARE = 1 / 32
"""Share of a step that runs after the last layer's cache has arrived, if loads overlap with computation."""
COMPRESSION = 3.5
DECOMPRESS_S_PER_TOKEN = 10e-6


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A served model on one engine."""

    kv_bytes_per_token: int
    memory_tokens: int
    """KV tokens that fit in an engine's memory."""
    step_s: float
    prefill_s_per_token: float
    max_context: int
    step_s_per_request: float = 60e-6
    attention_s_per_token_pair: float = 3e-9

    @property
    def read_s_per_token(self) -> float:
        """Time that each resident KV token adds to a step."""
        return self.kv_bytes_per_token / MEMORY_BYTES_PER_S


SERVED_MODELS = {
    "8b": ServedModel(
        kv_bytes_per_token=131_072,
        memory_tokens=412_000,
        step_s=0.012,
        prefill_s_per_token=0.11e-3,
        max_context=128_000,
    ),
    "13b": ServedModel(
        kv_bytes_per_token=819_200,
        memory_tokens=53_700,
        step_s=0.018,
        prefill_s_per_token=0.19e-3,
        max_context=32_000,
    ),
}


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
