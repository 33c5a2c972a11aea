"""Attributes rejections in a pool to the engine itself, or to the request and the fleet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from gateway.base.settings import BreakerSettings
from gateway.pools.engines.breaker import HTTP_4XX, HTTP_5XX
from gateway.pools.engines.engine_rejection import EngineRejection

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine
    from gateway.pools.pool.pool_progress import PoolProgress


class PoolRejections:
    """Reports rejections to the breakers of a pool's engines. It has no state."""

    def __init__(
        self,
        engines: Mapping[str, LiveEngine],
        progress: PoolProgress,
        limits: BreakerSettings,
        *,
        accepts: Callable[[str], bool],
        refresh: Callable[[], None],
    ) -> None:
        self._engines = engines
        self._progress = progress
        self._limits = limits
        self._accepts = accepts
        self._refresh = refresh

    def rejected(self, engine: LiveEngine, kind: str, rejection: EngineRejection, now: float) -> None:
        """Count a rejection against the engine, unless no other engine of its role is known to accept such requests."""
        engine_id = engine.entry.engine_id
        shared = all(other.breaker.doubted for other in self._others(engine_id, (engine_id,)))
        if kind == HTTP_5XX:
            engine.breaker.record_failure(kind, now, shared=shared)
            return
        self._progress.engine(engine_id).rejected(now)
        if kind == HTTP_4XX:
            engine.breaker.record_rejection(rejection.status, now, shared=shared)
        elif not shared:
            pause_s = self._limits.throttle_s if rejection.pause_s is None else rejection.pause_s
            engine.breaker.record_throttle(min(pause_s, self._limits.throttle_max_s), now)

    def untried(self, engine_id: str, tried: Collection[str]) -> frozenset[str]:
        """Return the engines of the same role that accept work and have not been tried."""
        return frozenset(other.entry.engine_id for other in self._others(engine_id, tried))

    def doubted(self, engine_ids: frozenset[str]) -> frozenset[str]:
        """Return the engines whose last answers were errors, empty if that applies to all of them."""
        doubted = frozenset(engine_id_ for engine_id_ in engine_ids if self._engines[engine_id_].breaker.doubted)
        return doubted if doubted != engine_ids else frozenset()

    def contradict(self, rejected: Collection[str]) -> None:
        """Record that another engine accepted a request that these rejected."""
        news = [
            item.breaker for item in self._known(rejected) if item.breaker.doubted and not item.breaker.contradicted
        ]
        for breaker in news:
            breaker.contradicted = True
        if news:
            self._refresh()

    def forgive(self, rejected: Collection[str], kind: str, now: float) -> None:
        """Revoke these engines' last rejections, because all engines gave the same answer."""
        for engine in self._known(rejected):
            engine.breaker.forgive(kind, now)
            if kind == HTTP_5XX:
                self._progress.engine(engine.entry.engine_id).forgive()

    def _known(self, engine_ids: Collection[str]) -> list[LiveEngine]:
        engines = self._engines
        return [engines[engine_id_] for engine_id_ in engine_ids if engine_id_ in engines]

    def _others(self, engine_id: str, tried: Collection[str]) -> list[LiveEngine]:
        engines = self._engines
        role = engines[engine_id].entry.role if engine_id in engines else None
        return [
            other
            for name, other in engines.items()
            if name not in tried and self._accepts(name) and role in (None, other.entry.role)
        ]
