"""Whether the gateway sends work to one engine: closed, open with a reason, or half-open while it is tested.

The gateway is the health authority for its own traffic, and acts on its own observations alone. An engine that gets no
new work is not lost for that: only its silence, a refused connection, or the hang limit makes it lost
(docs/decisions/0057-slow-is-not-dead.md). Nothing here reads a clock; `now` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.base.settings import BreakerSettings
from routing.values import counted

CLOSED = "closed"
OPEN = "open"
HALF_OPEN = "half_open"

CONNECT = "connect"
TIMEOUT = "timeout"
HTTP_5XX = "http_5xx"
HTTP_4XX = "http_4xx"
THROTTLED = "throttled"
BROKEN_STREAM = "broken_stream"
NO_PROGRESS = "no_progress"
START, SILENT, UNHEALTHY, PAUSED = "start", "silent", "unhealthy", "paused"
"""Never answered; answers no probe; answers that it is unhealthy; answers that it is paused."""
SAME_PROCESS = frozenset({HTTP_5XX, HTTP_4XX, THROTTLED, NO_PROGRESS})
"""Causes that keep an engine out although its process stayed."""

NO_ANSWER = "no answer yet since this gateway started"

_SENTENCES = {
    CONNECT: ("connection in a row failed", "connections in a row failed"),
    TIMEOUT: ("request in a row timed out", "requests in a row timed out"),
    HTTP_5XX: ("answer in a row was an error or broke off", "answers in a row were errors or broke off"),
}


class Breaker:
    """One engine's breaker. It starts open until the engine's first answer.

    Mutable state: `state`, `reason`, `since`, `cause`, `gone`, `hung`, the counts of consecutive failures, and the
    number of ejections that scales the next hold. `on_change` is called after each change of state,
    `on_doubt` after each failed request, so that a direct probe can follow at once.
    """

    def __init__(self, settings: BreakerSettings, now: float) -> None:
        self.state = OPEN
        self.reason = NO_ANSWER
        self.cause = START
        """The last cause of its opening."""
        self.gone = False
        """Whether its last probe was refused, so that no process listens there."""
        self.hung = False
        """Whether it has made no progress for its hang limit."""
        self.since = now
        self.answered = False
        """Whether the engine ever proved healthy."""
        self.trips = 0
        self.rejections = 0
        """Requests in a row that the engine rejected and another might have taken."""
        self.unsure = False
        """Whether all engines that were asked gave its last error, so that the request may be at fault."""
        self.contradicted = False
        """Whether another engine took a request that this one rejected, since it last took one itself."""
        self.on_change: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self._settings = settings
        self._counts = {CONNECT: 0, TIMEOUT: 0, HTTP_5XX: 0}
        self._failed_probes = 0
        self._ejections = 0
        self._hold_until = now

    @property
    def accepts(self) -> bool:
        """Whether new work may go there."""
        return self.state != OPEN

    @property
    def lost(self) -> bool:
        """Whether no result is to be expected: it answers no probe, or made no progress for the hang limit."""
        return self.state == OPEN and (self.hung or self.cause in (START, SILENT))

    @property
    def away(self) -> bool:
        """Whether it is out for a cause after which it may come back as another process."""
        return self.state == OPEN and self.cause not in SAME_PROCESS

    @property
    def stalled(self) -> bool:
        """Whether it is out because its requests had no results; only a sign of work brings it back."""
        return self.state == OPEN and self.cause == NO_PROGRESS

    @property
    def paused(self) -> bool:
        """Whether it is out because it reports itself as idle."""
        return self.state == OPEN and self.cause == PAUSED

    @property
    def excusable(self) -> bool:
        """Whether it may be alive, so that it gets work where no other engine is left."""
        return self.answered and not self.gone and self.cause not in (PAUSED, THROTTLED)

    @property
    def outlier(self) -> bool:
        """Whether it is out although it answers: its answers are errors."""
        return self.state == OPEN and self.cause in (HTTP_5XX, HTTP_4XX, THROTTLED)

    @property
    def doubted(self) -> bool:
        """Whether its last answers were errors, so that a retry goes elsewhere first."""
        return self.rejections > 0 or self.unsure or self.outlier

    @property
    def suspect(self) -> bool:
        """Whether anything failed since it last proved itself, so that a direct probe is due."""
        return self.state != CLOSED or self._failed_probes > 0 or any(self._counts.values())

    def record_failure(self, kind: str, now: float, *, shared: bool = False) -> None:
        """Count a request that failed: connect, timeout, http_5xx or broken_stream; opens at the limit.

        `shared`: the other engines fail, too, so that it stays in rotation.
        """
        counter = HTTP_5XX if kind == BROKEN_STREAM else kind
        if counter not in self._counts:
            raise ValueError(f"unknown kind of failure {kind!r}; known: connect, timeout, http_5xx, broken_stream")
        # Requests from before it opened may fail until later; they do not prolong it.
        if self.state == OPEN:
            return
        self._counts[counter] += 1
        count = self._counts[counter]
        if not shared and (self.state == HALF_OPEN or count >= self._limit(counter)):
            self._open(counter, counted.count(count, *_SENTENCES[counter]), now)
        if self.on_doubt is not None:
            self.on_doubt()

    def record_rejection(self, status: int, now: float, *, shared: bool) -> None:
        """Count a request rejected with 401, 403, 404, 408 or 425; opens at the limit unless the others reject, too."""
        if self.state == OPEN:
            return
        self.rejections += 1
        if not shared and (self.state == HALF_OPEN or self.rejections >= self._settings.rejections):
            words = counted.count(self.rejections, "request was", "requests in a row were")
            self._open(HTTP_4XX, f"{words} rejected with {status}", now)

    def record_throttle(self, pause_s: float, now: float) -> None:
        """Take it out for the time that it requests; that is no ejection, and makes no later one longer."""
        if self.state != OPEN:
            self._open(THROTTLED, f"it is busy and gets a pause of {pause_s:.0f} s", now)
            self._hold_until = now + pause_s

    def forgive(self, kind: str, now: float) -> None:
        """Take one error back, because all engines that were asked gave the same answer.

        Retries avoid it until it works. If it is broken, errors of requests that another engine answers count.
        """
        self.unsure = True
        if kind == HTTP_5XX:
            self._counts[HTTP_5XX] = max(0, self._counts[HTTP_5XX] - 1)
        else:
            self.rejections = max(0, self.rejections - 1)
        if self.state != OPEN or self.cause != kind:
            return
        if kind == THROTTLED:
            self._close(now)
        else:
            # It may have been on trial before; a request that it answers ends that.
            self._change(HALF_OPEN, f"on trial: {self.reason}, as by the other engines", now)

    def record_stall(self, reason: str, now: float) -> None:
        """Give it no new work because its requests have no results; running requests stay there."""
        if self.state != OPEN:
            self._open(NO_PROGRESS, reason, now)

    def record_hang(self, reason: str, now: float) -> None:
        """Mark it as lost: it has made no progress for its hang limit."""
        if self.state != OPEN:
            self._open(NO_PROGRESS, reason, now)
        if not self.lost:
            self.cause, self.hung = NO_PROGRESS, True
            self._change(OPEN, reason, now)

    def record_success(self, now: float) -> None:
        """Count a sign of work: closes a half-open breaker, and one that opened for lack of signs."""
        self._reset_counts()
        self.contradicted = False
        disproved = self.state == OPEN and (self.cause == NO_PROGRESS or (self.cause == SILENT and not self.gone))
        if self.state == HALF_OPEN or disproved:
            self._close(now)

    def observe_probe(
        self, serves: bool, reason: str, now: float, *, refused: bool = False, cause: str = SILENT
    ) -> None:
        """Record the result of the gateway's own health probe.

        `refused`: the connection was refused, which needs no second probe to be believed. `cause`: the meaning of a
        failed one.
        """
        self.gone = refused
        if serves:
            self._healthy_probe(now)
            return
        self._failed_probes += 1
        certain = refused or self._failed_probes >= self._settings.failed_probes
        if self.state == OPEN:
            if certain:
                self._keep_open(cause, reason, now)
        elif certain:
            self._open(cause, reason or "no answer to health probes", now)

    def check(self) -> None:
        """Raise AssertionError unless state, reason and counts agree."""
        if self.state not in (CLOSED, OPEN, HALF_OPEN):
            raise AssertionError(f"unknown state {self.state!r}")
        if (self.state == CLOSED) == bool(self.reason):
            raise AssertionError(f"{self.state} with reason {self.reason!r}")
        if self.state != OPEN and any(count >= self._limit(kind) for kind, count in self._counts.items()):
            raise AssertionError(f"{self.state} over a limit: {self._counts}")
        if self.state != OPEN and not self.answered:
            raise AssertionError("accepts work for an engine that was never heard")
        if min(self._counts.values()) < 0 or self._failed_probes < 0:
            raise AssertionError("a count is negative")
        if self.hung and not self.lost:
            raise AssertionError(f"{self.state} and hung")

    def _healthy_probe(self, now: float) -> None:
        self._failed_probes = 0
        if self.state == OPEN and now >= self._hold_until:
            first = not self.answered
            self.answered = True
            self._reset_counts()
            if first:
                self._close(now)
            else:
                self._change(HALF_OPEN, f"recovering after: {self.reason}", now)
        elif self.state == HALF_OPEN and now - self.since >= self._settings.trial_s:
            self._close(now)
        elif self.state == CLOSED:
            # Not its 5xx: an engine may answer errors while its /health is fine.
            self._counts[CONNECT] = self._counts[TIMEOUT] = 0

    def _keep_open(self, cause: str, reason: str, now: float) -> None:
        """Take cause and reason from the newest answer; an outlier that died is lost from then on."""
        before = self.lost
        self.reason = reason or self.reason
        if self.answered:
            self.cause = cause
            self._hold_until = now
        if self.lost != before:
            self._change(OPEN, self.reason, now)

    def _limit(self, counter: str) -> int:
        limits = {
            CONNECT: self._settings.connect_failures,
            TIMEOUT: self._settings.timeouts,
            HTTP_5XX: self._settings.server_errors,
        }
        return limits[counter]

    def _open(self, cause: str, reason: str, now: float) -> None:
        self.cause, self.hung = cause, False
        self.trips += 1
        self._hold_until = now
        # Its probes may be fine meanwhile, so that only time ends the hold.
        if cause in (HTTP_5XX, HTTP_4XX):
            long_well = self.state == CLOSED and now - self.since > self._settings.outlier_hold_max_s
            self._ejections = 1 if long_well else self._ejections + 1
            hold_s = min(self._settings.outlier_hold_s * self._ejections, self._settings.outlier_hold_max_s)
            self._hold_until = now + hold_s
        self._reset_counts()
        self._change(OPEN, reason, now)

    def _close(self, now: float) -> None:
        self._change(CLOSED, "", now)

    def _reset_counts(self) -> None:
        self.rejections = 0
        self.unsure = False
        for kind in self._counts:
            self._counts[kind] = 0

    def _change(self, state: str, reason: str, now: float) -> None:
        self.state = state
        self.hung = self.hung and state == OPEN
        self.reason = reason
        self.since = now
        if self.on_change is not None:
            self.on_change()
