"""How unevenly pending prefill tokens are spread over the engines, for live pools, simulations, and planning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

TIME_CONSTANT_S = 4.0
"""A reading counts 1/e after this long. At moderate load, an engine's work reaches 0 between two requests, so single
readings would measure how short the requests are, not how even the load is.
"""
IDLE_TOKENS = 64
"""A pool whose engines hold fewer tokens than this on average is idle: its CV is 0."""


class LoadSmoother:
    """Exponentially weighted means of pending tokens. Mutable state: one mean per engine, and its time."""

    def __init__(self, time_constant_s: float = TIME_CONSTANT_S) -> None:
        self._time_constant_s = time_constant_s
        self._means: dict[str, tuple[float, float]] = {}

    def update(self, readings: Mapping[str, float], now: float) -> list[float]:
        """Add readings (pending tokens by engine id) at `now` and return the means in the same order.

        The first reading of a new engine is its mean. Readings can come at any interval: the weight of the past is
        exp(−elapsed / time constant).
        """
        return [self._one(engine_id, value, now) for engine_id, value in readings.items()]

    def forget(self, engine_id: str) -> None:
        """Drop an engine that left or accepts no work."""
        self._means.pop(engine_id, None)

    def _one(self, engine_id: str, value: float, now: float) -> float:
        before = self._means.get(engine_id)
        mean = value
        if before is not None:
            keep = math.exp(-max(0.0, now - before[1]) / self._time_constant_s)
            mean = keep * before[0] + (1.0 - keep) * value
        self._means[engine_id] = (mean, now)
        return mean


def load_cv(means: Sequence[float]) -> float:
    """Return the standard deviation over the mean of smoothed pending tokens, 0 if idle or with fewer than two engines.

    DualMap §2.2, eq. 1.
    """
    if len(means) < 2:
        return 0.0
    mean = math.fsum(means) / len(means)
    if mean < IDLE_TOKENS:
        return 0.0
    return math.sqrt(math.fsum((item - mean) ** 2 for item in means) / len(means)) / mean
