"""Adds the counts of event ledgers to the gateway's counters."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.base.metrics import GatewayMetrics

_TYPES = ("BlockStored", "BlockRemoved", "AllBlocksCleared", "skipped", "below_engine", "unknown_medium")
"""Event types, and two results: skipped as unreadable, or about blocks in an unused tier."""


class EventCounters:
    """Adds the increase since the last sample. Mutable: the last counts per engine."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._seen: dict[str, dict[str, int]] = {}

    def take(self, engine_id: str, counts: Mapping[str, int]) -> None:
        """Add the increase of one engine's counts. Decreased counts belong to a new ledger and are added
        completely.
        """
        seen = self._seen.get(engine_id, {})
        grown = {name: count - seen.get(name, 0) for name, count in counts.items()}
        if any(growth < 0 for growth in grown.values()):
            grown = dict(counts)
        self._seen[engine_id] = dict(counts)
        for name in _TYPES:
            if grown.get(name):
                self._metrics.kv_events.inc(engine_id, name, amount=grown[name])
        if grown.get("gaps"):
            self._metrics.kv_event_gaps.inc(engine_id, amount=grown["gaps"])
        if grown.get("unreadable"):
            self._metrics.kv_events_unreadable.inc(engine_id, amount=grown["unreadable"])

    def forget(self, engine_id: str) -> None:
        """Remove an engine that left."""
        self._seen.pop(engine_id, None)
