"""Blocks that a planner wants to move to another node."""

from __future__ import annotations

from typing import Literal

import msgspec

Planner = Literal["prefetch", "advisory", "replicate", "shrink"]
PREFETCH: Planner = "prefetch"
"""A queued request will need them (Mooncake §5.2)."""
ADVISORY: Planner = "advisory"
"""A session has announced its next request (SYMPHONY §3.3)."""
REPLICATE: Planner = "replicate"
"""Engines repeatedly load them from another node (Mooncake §4.2)."""
SHRINK: Planner = "shrink"
"""The target should drop its copy, which no engine loads from any more. The source keeps its own."""
JUDGED: tuple[Planner, ...] = (PREFETCH, REPLICATE, SHRINK)
"""Planners whose trust is judged as a whole. For advisories, it is judged per source."""
MAX_BLOCKS = 4096
"""Maximum blocks per move: the first ones of a longer prompt."""


class KvMove(msgspec.Struct, frozen=True):
    """Adjacent blocks of a prompt, and their source and target nodes."""

    planner: Planner
    source: str
    """Name of a node that holds the blocks. If it is the target, blocks on its SSD are loaded into its DRAM."""
    target: str
    keys: tuple[int, ...]
    """Routing keys in prompt order."""
    seconds: float
    """Expected duration of the transfer."""
    rank: int = 0
    """Rank among one planner's moves, lowest first."""
    expected_s: float = 0.0
    """When the blocks are expected to be used, in monotonic seconds. 0: as soon as they arrive."""
