"""Detect engines that produce no first token because decodes fill their memory (DualMap A.8).

On a co-located engine, prefill has priority until the KV memory is full; then prefills wait until decodes end. The
paper estimates the rest of this wait as the time without a first token, now − last first token, once that is at least T
while prefills wait. Here, D is also at most the mean rest of earlier waits, and 0 if that is short: waits that end soon
after T move no request away from its cache (docs/decisions/0096-the-delay-by-decodes-is-learned.md). D is added to the
TTFT estimate of queued requests alone, which migrate if that makes them late (A.8.3). Beyond the paper, an engine that
reports free memory does not count as blocked by decodes, however slow it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from routing.ledger.fleet_view import NEVER
from routing.ledger.reservations import Reservations

_EVERY_S = 0.25
_FULL = 0.85
"""Share of the KV memory above which a long prompt can fail to fit."""
_REST_WEIGHT = 0.125
"""Weight of the newest wait in the mean rest of waits beyond T."""
_LEAST_REST = 0.5
"""Share of T below which the rest of waits is too short for a request to leave its cache."""


class Bottlenecks:
    """Keeps the delays of the reservations up to date.

    Mutable state: last first tokens, when queued requests began to wait for a target without running work, memory, when
    blocked targets were detected, the mean rest of their waits, and the time of the next check.
    """

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations
        self._first_token_s: dict[int, float] = {}
        self._waiting_since_s: dict[int, float] = {}
        self._usage: dict[int, float] = {}
        self._detected_s: dict[int, float] = {}
        self._rest_s = 0.0
        self.next_check_s = 0.0
        """`update_delays` does nothing before this time."""

    def resume(self) -> None:
        """Resume the checks, because T may have changed."""
        if self.next_check_s == NEVER:
            self.next_check_s = 0.0

    def note_memory(self, target: int, kv_usage: float) -> None:
        """Record the KV memory usage of an engine, 0..1. Other values are ignored."""
        if 0.0 <= kv_usage <= 1.0:
            self._usage[target] = kv_usage

    def first_token(self, target: int, now: float) -> None:
        """Record that the target ended a prefill: it is no longer blocked."""
        self._first_token_s[target] = now
        if target in self._detected_s:
            self._end_wait(target, now)

    def forget(self, target: int) -> None:
        """Drop the state of a removed target."""
        self._first_token_s.pop(target, None)
        self._waiting_since_s.pop(target, None)
        self._usage.pop(target, None)
        self._detected_s.pop(target, None)

    def update_delays(self, targets: Iterable[int], after_s: float, now: float) -> Sequence[int]:
        """Set the delay of each target, at most four times a second. Return the blocked targets.

        `after_s` is T; 0 disables the check.
        """
        if now < self.next_check_s:
            return ()
        if not (after_s or self._detected_s):
            self.next_check_s = NEVER
            return ()
        self.next_check_s = now + _EVERY_S
        held_up = []
        for target in targets:
            stalled_s = self._stalled_s(target, now)
            if after_s and stalled_s >= after_s:
                # The current wait counts, too: the first long one is not missed for want of earlier ones.
                rest_s = max(self._rest_s, now - self._detected_s.setdefault(target, now))
                if rest_s >= _LEAST_REST * after_s:
                    self._reservations.delay(target, min(stalled_s, rest_s))
                    held_up.append(target)
            elif target in self._detected_s:
                self._end_wait(target, now)
        return held_up

    def _end_wait(self, target: int, now: float) -> None:
        rest_s = now - self._detected_s.pop(target)
        self._rest_s += _REST_WEIGHT * (rest_s - self._rest_s)
        self._reservations.delay(target, 0.0)

    def _stalled_s(self, target: int, now: float) -> float:
        """Return how many seconds requests have waited without a first token, 0 if memory is free.

        Queued requests that are held because the engine has no room for them also count.
        """
        since_s = self._reservations.oldest_prefill_s(target)
        if since_s is None and self._reservations.waiting(target):
            since_s = self._waiting_since_s.setdefault(target, now)
        else:
            self._waiting_since_s.pop(target, None)
        # An engine that reports no memory may be full.
        if since_s is None or self._usage.get(target, 1.0) < _FULL:
            return 0.0
        return now - max(since_s, self._first_token_s.get(target, since_s))
