"""Judges engines by this gateway's own evidence, on a separate timer. Reports only read the verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from gateway.base.event_log import log_event
from gateway.pools.engines.health_verdict import PROBATION, at_slow_start_limit
from gateway.pools.engines.hit_pattern import PoolKeys
from gateway.pools.engines.stall_detector import HUNG, SUSPECTED, Seen, StallWatch
from gateway.pools.pool.ended_hits import EndedHits

if TYPE_CHECKING:
    from gateway.base.loop_lag import LoopLag
    from gateway.base.settings import GatewaySettings
    from gateway.pools.engines.live_engine import LiveEngine
    from gateway.pools.pool.live_pool import LivePool


class HealthWatch:
    """Evaluates all pools. Mutable: one stall watch per pool."""

    def __init__(self, pools: Callable[[], Iterable[LivePool]], lag: LoopLag, settings: GatewaySettings) -> None:
        self._pools = pools
        self.ended_hits = EndedHits()
        self._lag = lag
        self._limits_s = settings.breaker.stall_s, settings.limits.hang_limit_s
        self._stalls: dict[LivePool, StallWatch] = {}

    def evaluate(self) -> None:
        """Run the due evaluations of each pool."""
        now, unix = time.monotonic(), time.time()
        stalls = self._stalls
        self._stalls = {}
        for pool in self._pools():
            note_events(pool, now)
        # Removals first: their events may arrive after the answer whose hits they explain.
        self.ended_hits.take()
        for pool in self._pools():
            pool.rebalancing.evaluate(unix)
            watch = self._stalls[pool] = stalls.get(pool) or StallWatch(*self._limits_s, self._lag.vouches)
            # Observed streams are reported after their end, so they seem to stall.
            if not pool.observes:
                judge_progress(pool, watch, now)
            if pool.at_slow_start_limit or any(engine.entry.health == PROBATION for engine in pool.engines.values()):
                slow_start(pool, {load.engine_id: load.running for load in pool.router.loads(now)}, unix)
            judge_hits(pool, now)


def judge_progress(pool: LivePool, watch: StallWatch, now: float) -> None:
    """Stop new work for engines without progress, mark hung engines as lost, and trust those that progress."""
    engines = pool.engines
    for stall in watch.evaluate({name: _seen(pool, engine, now) for name, engine in engines.items()}, now):
        engine = engines[stall.engine_id]
        if stall.verdict == HUNG:
            engine.breaker.record_hang(stall.reason, now)
        elif stall.verdict == SUSPECTED:
            engine.breaker.record_stall(stall.reason, now)
        else:
            engine.probe_now(counters=True)
    for name, engine in engines.items():
        if engine.breaker.stalled and watch.moves(name):
            engine.breaker.record_success(now)


def _seen(pool: LivePool, engine: LiveEngine, now: float) -> Seen:
    entry = engine.entry
    return Seen(
        work=pool.progress.engine(entry.engine_id).watched(),
        role=entry.role,
        holds=engine.running_now(now),
        counted=engine.counted(now),
        accepts=pool.accepts(entry.engine_id),
        suspected=engine.breaker.stalled,
    )


def slow_start(pool: LivePool, running: Mapping[str, int], unix: float) -> None:
    """Apply the growing share of engines in probation, from the number of requests running on each engine."""
    pool.at_slow_start_limit = at_slow_start_limit(pool.engines.values(), running, unix)
    pool.refresh()


def note_events(pool: LivePool, now: float) -> None:
    """Record which engines removed blocks or missed events, which explains missing hits."""
    for engine in pool.engines.values():
        if engine.intake is not None:
            engine.hits.note_events(engine.intake.ledger.counts, now)


def judge_hits(pool: LivePool, now: float) -> None:
    """Judge the engines' reported hits, and update the router's facts if trust changed."""
    keys = PoolKeys(pool.entry.isolated, pool.by_dispatches, pool.several_tenants)
    changed = False
    for engine_id, engine in pool.engines.items():
        if engine.hits.judge(keys, now):
            changed = True
            verdict = engine.hits.verdict
            log_event("hits_judged", engine_id=engine_id, grade=verdict.grade, cause=verdict.cause)
    if changed:
        pool.refresh()
