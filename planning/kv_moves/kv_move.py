"""Blocks that a planner wants on another node."""

from __future__ import annotations

from typing import Literal

import msgspec

Planner = Literal["prefetch", "advisory", "replicate", "shrink"]
PREFETCH: Planner = "prefetch"
"""A queued request will need them (Mooncake §5.2)."""
ADVISORY: Planner = "advisory"
"""A session has announced its next request (SYMPHONY §3.3)."""
REPLICATE: Planner = "replicate"
"""They are repeatedly loaded from another node (Mooncake §4.2)."""
SHRINK: Planner = "shrink"
"""The target is to give up its copy, which no engine loads from any more; the source keeps its own."""
JUDGED: tuple[Planner, ...] = (PREFETCH, REPLICATE, SHRINK)
"""Planners that are trusted as a whole; the sources of advisories are judged one by one."""
MAX_BLOCKS = 4096
"""Blocks of one move; of a longer prompt the first ones."""


class KvMove(msgspec.Struct, frozen=True):
    """Neighbouring blocks of a prompt, and their source and target nodes."""

    planner: Planner
    source: str
    """Name of a node that holds them; the target's own name: they may be on its SSD and should be in its DRAM."""
    target: str
    keys: tuple[int, ...]
    """Routing keys, in the order of the prompt."""
    seconds: float
    """Expected duration of the transfer."""
    rank: int = 0
    """Among moves of one planner the lower goes first."""
    expected_s: float = 0.0
    """When the blocks are expected to be used, as monotonic seconds; 0: as soon as they arrive."""
