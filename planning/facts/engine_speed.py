"""One engine's recent speed compared with the expected one, for live and simulated engines."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

WINDOW_S = 60.0
"""Period over which an engine's speed is judged."""
MAX_SAMPLES = 256
"""Maximum timings kept. The newest count."""
ENOUGH_LATE = 3
"""From this number of late requests on, older first tokens no longer represent the engine."""
SLOW_RUN = 2.0
"""A first token after this multiple of its expected time continues a run of slow ones."""
SLOW_RUN_S = 10.0
"""A run of slow first tokens proves a change after this time, which is longer than pauses of the machine."""

Speed = tuple[float | None, int]
"""A median (None without values), and its number of samples."""


class _Sample(NamedTuple):
    """One request's slowness: when its first token was due, when the ratio was known, and actual / expected time."""

    due_s: float
    at_s: float
    slowness: float


class EngineSpeed:
    """One engine's timings. Mutable: the samples, and when its assigned prefills should be done.

    All times are in seconds of one clock. It is reset with each incarnation of the engine.
    """

    def __init__(self) -> None:
        self._ready_s = 0.0
        self._first_tokens: deque[_Sample] = deque(maxlen=MAX_SAMPLES)
        self._tpot: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)

    def expects(self, prefill_s: float, now: float, ahead_s: float = math.inf) -> float:
        """Record a prefill sent to the engine. Return the expected seconds to its first token, including work ahead.

        `ahead_s`: the prefills without a first token; infinite if it is not known. Without it, prefills
        that took less than their estimate would count as work ahead for minutes.
        """
        # No max(): every dispatch runs this.
        ready_s = self._ready_s if self._ready_s < now + ahead_s else now + ahead_s
        self._ready_s = (ready_s if ready_s > now else now) + prefill_s
        return self._ready_s - now

    def first_token(self, took_s: float, expected_s: float, now: float) -> None:
        """Record the actual and expected time of a first token. It is ignored without an expectation."""
        if expected_s > 0:
            self._first_tokens.append(_Sample(now - took_s + expected_s, now, took_s / expected_s))

    def answered(self, tpot_s: float, now: float) -> None:
        """Record the mean seconds between the tokens of one answer."""
        self._tpot.append((now, tpot_s))

    def usual(self) -> float:
        """Return the usual ratio of a first token's time to its estimate, 1 without samples."""
        return (
            statistics.median(first_token.slowness for first_token in self._first_tokens) if self._first_tokens else 1.0
        )

    def slowness(self, pending: Iterable[tuple[float, float]], now: float) -> Speed:
        """Return the median of actual over expected seconds to first token.

        `pending`: (dispatch time, expected seconds) of requests without a first token. A late one counts before its
        first token arrives. Several late ones, or a run of slow ones up to the newest, prove a change: samples from
        before the first of them was due no longer count.
        """
        while self._first_tokens and self._first_tokens[0].at_s < now - WINDOW_S:
            self._first_tokens.popleft()
        # A late request counts with its time so far: its first token may never come.
        late = [
            _Sample(dispatched_s + expected_s, now, (now - dispatched_s) / expected_s)
            for dispatched_s, expected_s in pending
            if 0 < expected_s < now - dispatched_s
        ]
        since = min(item.due_s for item in late) if len(late) >= ENOUGH_LATE else 0.0
        samples = [*self._first_tokens, *late]
        since = max(since, _change_s(samples))
        return _median([item.slowness for item in samples if item.at_s >= since])

    def tpot(self, now: float) -> Speed:
        """Return the median of the mean seconds between an answer's tokens."""
        while self._tpot and self._tpot[0][0] < now - WINDOW_S:
            self._tpot.popleft()
        return _median([seconds for _, seconds in self._tpot])


def _change_s(samples: Sequence[_Sample]) -> float:
    """Return when the first of the current run of slow first tokens was due, 0 without a run."""
    run: list[_Sample] = []
    # By the moment at which they were due, the latest first.
    for item in sorted(samples, reverse=True):
        if item.slowness < SLOW_RUN:
            break
        run.append(item)
    lasts_s = max(item.at_s for item in run) - run[-1].due_s if run else 0.0
    return run[-1].due_s if len(run) >= ENOUGH_LATE and lasts_s >= SLOW_RUN_S else 0.0


def _median(values: list[float]) -> Speed:
    return (statistics.median(values), len(values)) if values else (None, 0)
