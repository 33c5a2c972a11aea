"""Selective pushing: decide whether an engine can get another request now (SkyWalker §3.3).

`pending` (SP-P) uses the engine's report: an accepted request that has not started means that the batch is full. Our
own requests with a first token are not pending, even if an older report says so, and too little free KV memory predicts
that a prompt would be pending. A report that is too old is ignored: the prefill window alone then decides, so a silent
engine is never blocked. `reported` is SP-P as published: the report alone decides, without our own prefill window.
"""

from __future__ import annotations

import msgspec

from routing.ledger.fleet_view import NEVER
from routing.ledger.reservations import Reservations
from routing.policy.dispatch_limit_document import BLIND, IN_FLIGHT, REPORTED, DispatchLimitDocument

_HELD_S = 0.25
"""How long an engine is kept free for a prompt that does not fit yet. Another engine can take it in the meantime."""


class _Report(msgspec.Struct, gc=False):
    """An engine's last report, except its free memory. Mutable: first tokens lower `pending`."""

    pending: int
    at_s: float
    held_tokens: int = 0
    """Prompt tokens of a request held for lack of memory. It is still held at `held_until_s`."""
    held_until_s: float = 0.0
    blocks: bool = False
    """Whether a request was held because of this report."""


class DispatchLimit:
    """Decides which targets can get work. Mutable state: the settings, and `reports`, the last one of each target."""

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations
        self.reports: dict[int, _Report] = {}
        self.adopt(DispatchLimitDocument(), 1, 0.0)

    def adopt(self, settings: DispatchLimitDocument, prefill_window_tokens: int, lookahead_s: float) -> None:
        """Follow these settings."""
        self._settings = settings
        self._window_tokens = prefill_window_tokens
        self._lookahead_s = lookahead_s
        self._blind, self._by_count = settings.mode == BLIND, settings.mode == IN_FLIGHT
        self._by_report = settings.mode == REPORTED

    def report(self, target: int, pending: int, room_tokens: int | None, now: float) -> None:
        """Record an engine's report: `pending` requests have not started, and `room_tokens` of memory are free."""
        room = float("inf") if room_tokens is None else float(room_tokens)
        self._reservations.note_report(target, pending, room, now + self._settings.report_ttl_s)
        last = self.reports.get(target)
        if last is None or room >= last.held_tokens:
            self.reports[target] = _Report(pending, now)
        else:
            self.reports[target] = _Report(pending, now, last.held_tokens, last.held_until_s)

    def started(self, target: int) -> None:
        """Record a first token: one request fewer is pending than in the last report."""
        report = self.reports.get(target)
        # As published, nothing but the next report changes what is pending.
        if report is not None and report.pending and not self._by_report:
            report.pending -= 1

    def forget(self, target: int) -> None:
        """Forget the report of a removed target."""
        self.reports.pop(target, None)

    def may_dispatch(self, target: int, uncached_tokens: int, prompt_tokens: int, now: float) -> bool:
        """Return whether such a prompt can be dispatched to the target."""
        if self._blind:
            return True
        reservations = self._reservations
        if self._by_count:
            return reservations.dispatched(target) < self._settings.in_flight_limit
        report = self._fresh_report(target, now)
        if self._by_report and report is not None:
            report.blocks = report.pending > 0
            return not report.blocks
        if not reservations.may_start(target, uncached_tokens, self._window_tokens, now + self._lookahead_s):
            return False
        # Without a fresh report the prefill window alone decides, so that a silent engine is never blocked.
        if report is None:
            return True
        # Our own requests with a first token are not pending, whatever an older report states.
        pending = report.pending > 0 and reservations.prefilling(target) > 0
        # An empty engine is never kept waiting for room: no request there would free any.
        starts = not pending and (
            self._has_room(target, report, prompt_tokens, now) or not reservations.dispatched(target)
        )
        report.blocks = report.blocks or not starts
        return starts

    def is_open(self, target: int, now: float) -> bool:
        """Return whether another request would start at once, without reserving capacity for it."""
        reservations = self._reservations
        if self._by_count:
            return reservations.dispatched(target) < self._settings.in_flight_limit
        report = self._fresh_report(target, now)
        if self._by_report and report is not None:
            return report.pending == 0
        if not reservations.may_start(target, 0, self._window_tokens - 1, now + self._lookahead_s):
            return False
        return report is None or report.pending == 0 or reservations.prefilling(target) == 0

    def _has_room(self, target: int, report: _Report, prompt_tokens: int, now: float) -> bool:
        if not self._settings.wait_for_memory:
            return True
        if report.held_tokens and now >= report.held_until_s:
            report.held_tokens = 0
        # Smaller prompts may not take the room that a larger one waits for, or it would wait for ever.
        if max(prompt_tokens, report.held_tokens) <= self._reservations.room_tokens(target):
            return True
        if prompt_tokens > report.held_tokens:
            report.held_tokens, report.held_until_s = prompt_tokens, now + _HELD_S
        return False

    def opens_at(self, target: int, now: float) -> float:
        """Return when the target can accept work without a new report, inf if it needs one."""
        if self._blind or self._by_count:
            return NEVER
        report = self.reports.get(target)
        free_s = self._reservations.free_at(target) - self._lookahead_s
        # A report that blocks is followed by another, or expires.
        old_s = report.at_s + self._settings.report_ttl_s if report is not None and report.blocks else now
        return old_s if old_s > now else free_s

    def stepped_down(self, target: int, now: float) -> bool:
        """Return whether reports are needed but none is fresh: the prefill window alone decides."""
        return not (self._blind or self._by_count) and self._fresh_report(target, now) is None

    def _fresh_report(self, target: int, now: float) -> _Report | None:
        report = self.reports.get(target)
        return report if report is not None and now < report.at_s + self._settings.report_ttl_s else None

    def check(self) -> None:
        """Raise AssertionError if a report is invalid."""
        if any(report.pending < 0 for report in self.reports.values()):
            raise AssertionError("a negative number of requests is pending")
