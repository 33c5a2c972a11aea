"""The compared systems: where a request is placed, where KV caches are kept, and the effect of an advisory."""

from __future__ import annotations

from typing import Literal

import msgspec

Placement = Literal["requests", "home", "cost"]
Store = Literal["none", "host", "tiers", "remote"]
Advisories = Literal["ignored", "always", "gated"]


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One system's rules."""

    placement: Placement
    """The engine with the fewest requests, the session's own, or the one of the least cost."""
    store: Store
    """None; DRAM of the node; DRAM and disk of all nodes; a remote store without limit."""
    advisories: Advisories = "ignored"
    blocking: bool = False
    """A request joins the batch at once, and the batch waits in its step for the request's cache."""
    may_recompute: bool = False
    """Whether to recompute where loading would take longer."""
    move: bool = False
    """A cache that is fetched from another node's DRAM leaves it."""
    migrates: bool = False
    """Running requests move between engines when their counts differ."""
    compressed: bool = False
    """Caches are 3.5 times smaller below engine memory, and decompressed within the step."""
    memory_order: str = "layers"
    """Which prefetched caches are purged from engine memory first: later layers, the oldest, or by expected arrival."""
    pinned: bool = False
    """Whether prefetched caches keep requests out of engine memory while others run."""
    layerwise: bool = True


_ON_DEMAND = System(placement="cost", store="tiers", may_recompute=True, move=True)
_SYMPHONY = System(placement="requests", store="tiers", advisories="always", blocking=True)
_STICKY = System(placement="home", store="host")
_replace = msgspec.structs.replace

SYSTEMS: dict[str, System] = {
    "ours": _replace(_ON_DEMAND, advisories="gated", memory_order="expected"),
    "ondemand": _ON_DEMAND,
    "ondemand_load": _replace(_ON_DEMAND, may_recompute=False, move=False),
    "ondemand_requests": System(placement="requests", store="tiers"),
    "symphony": _SYMPHONY,
    "symphony_async": _replace(_SYMPHONY, blocking=False, may_recompute=True, move=True),
    "symphony_pinned": _replace(_SYMPHONY, pinned=True),
    "symphony_oldest_first": _replace(_SYMPHONY, memory_order="oldest"),
    "symphony_whole_loads": _replace(_SYMPHONY, layerwise=False),
    "sticky": _STICKY,
    "migrate": _replace(_STICKY, migrates=True),
    "lossy_store": System(placement="requests", store="remote", blocking=True, compressed=True),
    "recompute": System(placement="requests", store="none"),
}


def system_named(name: str, *, compressed: bool = False) -> System:
    """Return a system of the table; with `compressed`, its caches are smaller below engine memory."""
    if name not in SYSTEMS:
        raise ValueError(f"no system is named {name!r}; there are {', '.join(SYSTEMS)}")
    system = SYSTEMS[name]
    return _replace(system, compressed=True) if compressed else system
