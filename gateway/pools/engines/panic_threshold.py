"""Engines that stay in rotation although their breakers are open."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.pools.engines.live_engine import READY, LiveEngine

_OUTLIER_SHARE = 0.1
"""Maximum share of a pool, but at least one engine, that is excluded only because of wrong answers."""
_CONTRADICTED_SHARE = 0.5
"""Maximum share if other engines accepted what these rejected. Beyond half of the pool, the others could not carry the
load.
"""


def excused_engines(engines: Collection[LiveEngine]) -> frozenset[str]:
    """Return the ids of engines excused for their open breakers: if many appear faulty, the cause is rarely theirs.

    Only the first few ejections therefore count, starting with engines that others contradict. If no engine remains for
    a role's work, all engines that may be alive are excused, whatever opened their breakers.
    """
    ejected = sorted(
        (not engine.breaker.contradicted, engine.breaker.since, engine.entry.engine_id)
        for engine in engines
        if engine.breaker.outlier
    )
    contradicted = sum(not uncontradicted for uncontradicted, _, _ in ejected)
    allowed = max(1, int(len(engines) * _OUTLIER_SHARE), min(contradicted, int(len(engines) * _CONTRADICTED_SHARE)))
    excused = frozenset(engine_id for _, _, engine_id in ejected[allowed:])
    ready = [engine for engine in engines if engine.entry.desired_state == READY]
    return excused.union(*(_last_ones(role, ready, excused) for role in {engine.entry.role for engine in ready}))


def _last_ones(role: str, ready: Sequence[LiveEngine], excused: frozenset[str]) -> frozenset[str]:
    """Return the role's engines that may be alive, empty if another engine that accepts work can replace them."""
    able = [item for item in ready if item.entry.role in (role, "mixed")]
    if any(item.breaker.accepts or item.entry.engine_id in excused for item in able):
        return frozenset()
    return frozenset(item.entry.engine_id for item in able if item.breaker.excusable)
