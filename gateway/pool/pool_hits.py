"""What a pool makes of its engines' reported hits: trust in their indices, which routing follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base.event_log import log_event
from gateway.engines.hit_pattern import PoolKeys

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


def judge_hits(pool: LivePool, now: float) -> None:
    """Look at the engines' events and reported hits, and give the router new facts where trust changed."""
    keys = PoolKeys(pool.entry.isolated, pool.by_dispatches)
    changed = False
    for engine_id, engine in pool.engines.items():
        if engine.intake is not None:
            engine.hits.note_events(engine.intake.ledger.counts, now)
        if engine.hits.judge(keys, now):
            changed = True
            verdict = engine.hits.verdict
            log_event("hits_judged", engine_id=engine_id, grade=verdict.grade, cause=verdict.cause)
    if changed:
        pool.refresh()
