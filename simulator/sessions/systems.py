"""The systems to compare: where requests are placed, where KV caches are stored, and what advisories do."""

from __future__ import annotations

from typing import Literal

import msgspec

Placement = Literal["requests", "home", "cost"]
Store = Literal["none", "host", "tiers", "remote"]
Advisories = Literal["ignored", "always", "gated"]


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One system's rules."""

    placement: Placement
    """The engine that serves a request: the one with the fewest requests, the session's engine, or the one of least
    cost.
    """
    store: Store
    """Where caches are stored: nowhere; the node's DRAM; DRAM and disk of all nodes; an unlimited remote store."""
    advisories: Advisories = "ignored"
    blocking: bool = False
    """Whether a request joins the batch at once, and the batch waits in its step for the request's cache."""
    may_recompute: bool = False
    """Whether to recompute a context if loading it takes longer."""
    move: bool = False
    """Whether a cache fetched from another node's DRAM is removed there."""
    migrates: bool = False
    """Whether running requests move between engines if their counts differ."""
    compressed: bool = False
    """Whether caches are 3.5 times smaller below engine memory, and decompressed within the step."""
    memory_order: str = "layers"
    """Which prefetched caches are purged from engine memory first: later layers, the oldest, or by expected arrival."""
    pinned: bool = False
    """Whether prefetched caches keep requests out of engine memory while other requests run."""
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
