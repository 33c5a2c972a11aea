"""Engines that stay in rotation although their answers are errors."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.engines.live_engine import LiveEngine

_OUTLIER_SHARE = 0.1
"""At most this share of a pool, and at least one engine, is kept out for wrong answers alone."""
_CONTRADICTED_SHARE = 0.5
"""The same where other engines took what these rejected: beyond half of the pool the rest could not carry the load."""


def excused_engines(engines: Collection[LiveEngine]) -> frozenset[str]:
    """Return the ids of those that are excused: where many look wrong, the fault is rarely theirs.

    So only the first few ejections count, those first that other engines contradict.
    """
    ejected = sorted(
        (not engine.breaker.contradicted, engine.breaker.since, engine.entry.engine_id)
        for engine in engines
        if engine.breaker.outlier
    )
    contradicted = sum(not uncontradicted for uncontradicted, _, _ in ejected)
    allowed = max(1, int(len(engines) * _OUTLIER_SHARE), min(contradicted, int(len(engines) * _CONTRADICTED_SHARE)))
    return frozenset(engine_id for _, _, engine_id in ejected[allowed:])
