"""Speed of an engine's peers: medians over all other engines, from one sorted list for the whole pool."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from planning.documents.health_document import HealthDocument
from planning.facts.fleet_facts import EngineObservation, known

LEAST_PEERS = 2
"""Minimum number of judged peers for calling an engine slower."""


class Peers(msgspec.Struct, frozen=True):
    """Typical values among an engine's peers; None if too few can be judged."""

    slowness: float | None
    tpot_s: float | None
    rejected_share: float | None = None


class PeerSpeeds:
    """The speeds of a pool's engines at one time."""

    def __init__(self, engines: Sequence[EngineObservation], settings: HealthDocument) -> None:
        self._least = settings.slow_samples
        self._rejected = sorted(engine for engine in map(self._rejected_of, engines) if engine is not None)
        self._slowness = sorted(engine for engine in map(self._slowness_of, engines) if engine is not None)
        self._tpots = sorted(engine for engine in map(self._tpot_of, engines) if engine is not None)

    def peers_of(self, facts: EngineObservation) -> Peers:
        """Return the medians over all other engines."""
        return Peers(
            _median_without(self._slowness, self._slowness_of(facts)),
            _median_without(self._tpots, self._tpot_of(facts)),
            _median_without(self._rejected, self._rejected_of(facts)),
        )

    def _rejected_of(self, facts: EngineObservation) -> float | None:
        return known(facts.rejected_share) if facts.rejected_samples >= self._least else None

    def _slowness_of(self, facts: EngineObservation) -> float | None:
        return known(facts.slowness) if facts.slowness_samples >= self._least else None

    def _tpot_of(self, facts: EngineObservation) -> float | None:
        return known(facts.tpot_s) if facts.tpot_samples >= self._least else None


def _median_without(values: Sequence[float], own: float | None) -> float | None:
    """Return the median of sorted values without one of them, None for fewer than LEAST_PEERS."""
    # The engine's own value is skipped in place, instead of sorting again for each engine.
    skipped = len(values) if own is None else bisect_left(values, own)
    count = len(values) - (own is not None)
    if count < LEAST_PEERS:
        return None

    def at(position: int) -> float:
        return values[position + (position >= skipped)]

    return (at((count - 1) // 2) + at(count // 2)) / 2
