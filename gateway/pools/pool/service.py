"""A service: this gateway's pools that serve one model, and the choice among them.

Weighted rendezvous hashing gives each pool its share and keeps a session, or a conversation, on one pool. A change of
pools or weights moves as few of them as possible. Requests of an overloaded pool go to the next pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import xxhash

from gateway.server.http.openai_error import ApiError
from routing.trials.arms import CANARY

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

PATIENCE_S = 1.0
"""A request goes to another pool if its own would make it wait this much longer. The value was chosen, not measured."""


class Service:
    """The pools of one model, at least one. It is rebuilt with each snapshot."""

    __slots__ = ("_everyday", "pools")

    def __init__(self, pools: Sequence[LivePool], home: str | None = None) -> None:
        """`home` is the preferred region; None: no preference."""
        self.pools = tuple(sorted(pools, key=lambda pool: (pool.entry.region, pool.entry.name)))
        routing = tuple(pool for pool in self.pools if not pool.observes)
        near = tuple(pool for pool in routing if pool.entry.region == home)
        self._everyday = near or routing or self.pools

    def in_region(self, region: str) -> Service | None:
        """Return a service with only this region's pools, None if there are none."""
        pools = [pool for pool in self.pools if pool.entry.region == region]
        return Service(pools, region) if pools else None

    def choose(self, affinity: Callable[[], bytes], now: float) -> LivePool:
        """Return the pool of a request. `affinity` returns a key that is the same in all turns of a conversation.

        A pool that has weight 0, or no engine that accepts work, is chosen only if there is no other.
        """
        if len(self._everyday) == 1:
            return self._everyday[0]
        serving = [pool for pool in self._everyday if pool.router.view.roster.accepting] or list(self._everyday)
        weighted = [pool for pool in serving if pool.entry.weight] or serving
        if len(weighted) == 1:
            return weighted[0]
        waits = {pool.entry.pool_id: pool.router.least_wait_s(now) for pool in weighted}
        limit_s = min(waits.values()) + PATIENCE_S
        key = affinity()
        by_distance = sorted(weighted, key=lambda pool: (_distance(key, pool), pool.entry.pool_id))
        near = [pool for pool in by_distance if waits[pool.entry.pool_id] <= limit_s]
        # A pool on trial gets its share, and requests that others give away do not raise it.
        return next((pool for pool in near if pool is by_distance[0] or pool.entry.arm != CANARY), by_distance[0])

    def observing(self) -> tuple[LivePool, ...]:
        """Return the observe-only pools."""
        return tuple(pool for pool in self.pools if pool.observes)


def service_of_name(pools: Iterable[LivePool], name: str, granted: Collection[str], home: str | None) -> Service | None:
    """Return the service of an alias or adapter of a served model, None if the name is unknown.

    Its use is granted with the served model; an empty `granted` means all. If engines of several served models have the
    name, the first of these models is chosen.
    """
    able = [pool for pool in pools if pool.names.engines(name) and (not granted or pool.entry.served_model in granted)]
    first = min((pool.entry.served_model for pool in able), default="")
    able = [pool for pool in able if pool.entry.served_model == first]
    return Service(able, home) if able else None


def reject_if_observing(pool: LivePool) -> None:
    """Raise ApiError 409 if the pool only observes."""
    if pool.observes:
        raise ApiError(409, "This pool only observes; send requests to your own proxy.", "pool_observes")


def _distance(key: bytes, pool: LivePool) -> float:
    """Return the pool's distance from the key. The least distance wins, for each pool in proportion to its weight."""
    # In (0, 1), because log(0) is undefined.
    drawn = (xxhash.xxh3_64_intdigest(pool.entry.pool_id.encode() + b"\0" + key) + 1) / ((1 << 64) + 1)
    return -math.log(drawn) / (pool.entry.weight or 1)
