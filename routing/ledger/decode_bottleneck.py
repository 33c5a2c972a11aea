"""Engines that produce no first token because decodes fill their memory (DualMap A.8).

On a co-located engine, prefill has priority until the KV memory is full; then prefills wait until decodes end. The
length of this wait is unknown, so the time without a first token is used as its estimate: D = now − the last first
token, if that is at least T while prefills are waiting there. D is added to the TTFT estimate of new requests and of
the requests queued there, which migrate if that makes them late (A.8.3). Beyond the paper, an engine that reports free
memory is not considered blocked by decodes, however slow it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from routing.ledger.fleet_view import NEVER
from routing.ledger.reservations import Reservations

_EVERY_S = 0.25
_FULL = 0.85
"""Share of the KV memory from which a long prompt may not fit."""


class Bottlenecks:
    """Keeps the delays of the reservations up to date.

    Mutable: last first tokens, since when queued requests alone wait for a target, memory, and the next check's time.
    """

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations
        self._first_token_s: dict[int, float] = {}
        self._waiting_since_s: dict[int, float] = {}
        self._usage: dict[int, float] = {}
        self._delayed: set[int] = set()
        self.next_check_s = 0.0
        """Before this moment `update_delays` does nothing."""

    def resume(self) -> None:
        """Resume the checks at once if they were suspended for good: T may have changed."""
        if self.next_check_s == NEVER:
            self.next_check_s = 0.0

    def note_memory(self, target: int, kv_usage: float) -> None:
        """Note how full an engine's KV memory is, 0..1; other values are ignored."""
        if 0.0 <= kv_usage <= 1.0:
            self._usage[target] = kv_usage

    def first_token(self, target: int, now: float) -> None:
        """Note that the target ended a prefill: it is no longer held up."""
        self._first_token_s[target] = now
        if target in self._delayed:
            self._delayed.discard(target)
            self._reservations.delay(target, 0.0, now)

    def forget(self, target: int) -> None:
        """Drop the state of a target that is gone."""
        self._first_token_s.pop(target, None)
        self._waiting_since_s.pop(target, None)
        self._usage.pop(target, None)
        self._delayed.discard(target)

    def update_delays(self, targets: Iterable[int], after_s: float, now: float) -> Sequence[int]:
        """Set the delay of each target, at most four times a second, and return those that are held up.

        `after_s` is T, 0 for never.
        """
        if now < self.next_check_s:
            return ()
        if not (after_s or self._delayed):
            self.next_check_s = NEVER
            return ()
        self.next_check_s = now + _EVERY_S
        held_up = []
        for target in targets:
            stalled_s = self._stalled_s(target, now)
            delay_s = stalled_s if after_s and stalled_s >= after_s else 0.0
            if delay_s or target in self._delayed:
                self._reservations.delay(target, delay_s, now)
                (self._delayed.add if delay_s else self._delayed.discard)(target)
            if delay_s:
                held_up.append(target)
        return held_up

    def _stalled_s(self, target: int, now: float) -> float:
        """Return the seconds for which requests have waited there without a first token; 0 with memory left.

        Queued requests that are held back because the engine has no room for them count too.
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
