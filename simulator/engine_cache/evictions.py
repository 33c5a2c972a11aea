"""The table of eviction rules of prefix caches, by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from simulator.engine_cache.leaf_eviction import EvictionRule
from simulator.engine_cache.lru_leaves import LruLeaves
from simulator.engine_cache.rlt_leaves import SimulatedRltLeaves

EVICTIONS: dict[str, Callable[[random.Random], EvictionRule]] = {
    "lru": lambda _rng: LruLeaves,
    "rlt": lambda rng: partial(SimulatedRltLeaves, rng=rng),
}


class UnknownEvictionError(ValueError):
    """No eviction rule has this name; the message lists the known names."""


def eviction_rule(name: str, rng: random.Random) -> EvictionRule:
    """Return the rule of this name, with random choices from `rng`; raise UnknownEvictionError."""
    build = EVICTIONS.get(name)
    if build is None:
        raise UnknownEvictionError(f"eviction {name!r} is unknown; known are {', '.join(EVICTIONS)}")
    return build(rng)
