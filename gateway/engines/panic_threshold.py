"""Engines that stay in rotation although their breakers are open."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.engines.live_engine import READY, LiveEngine

_OUTLIER_SHARE = 0.1
"""At most this share of a pool, and at least one engine, is kept out for wrong answers alone."""
_CONTRADICTED_SHARE = 0.5
"""The same where other engines took what these rejected: beyond half of the pool the rest could not carry the load."""


def excused_engines(engines: Collection[LiveEngine]) -> frozenset[str]:
    """Return the ids of those that are excused: where many appear wrong, the fault is rarely theirs.

    So only the first few ejections count, those first that other engines contradict. Where no engine is left for a
    role's work, all are excused that may be alive, whatever opened their breakers.
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
    """Return the engines of a role that may be alive; none while another one takes work that can replace them."""
    able = [item for item in ready if item.entry.role in (role, "mixed")]
    if any(item.breaker.accepts or item.entry.engine_id in excused for item in able):
        return frozenset()
    return frozenset(item.entry.engine_id for item in able if item.breaker.excusable)
