"""Decides whether the gateway sends work to an engine: closed, open with a reason, or half-open for a test.

The gateway is the health authority for its own traffic and acts only on its own observations. An engine without new
work is not lost: only silence, a refused connection, or the hang limit makes it lost
(docs/decisions/0057-slow-is-not-dead.md). This module reads no clock; `now` is monotonic seconds.
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
"""Never answered; answers no probe; reports itself unhealthy; reports itself paused."""
SAME_PROCESS = frozenset({HTTP_5XX, HTTP_4XX, THROTTLED, NO_PROGRESS})
"""Causes that remove an engine from rotation although its process is the same."""

NO_ANSWER = "no answer yet since this gateway started"

_SENTENCES = {
    CONNECT: ("connection in a row failed", "connections in a row failed"),
    TIMEOUT: ("request in a row timed out", "requests in a row timed out"),
    HTTP_5XX: ("answer in a row was an error or broke off", "answers in a row were errors or broke off"),
}


class Breaker:
    """One engine's breaker. It starts open until the engine's first answer.

    Mutable: `state`, `reason`, `since`, `cause`, `gone`, `hung`, the counts of consecutive failures, and the number of
    ejections, which scales the next hold. `on_change` is called after each change of state, and `on_doubt` after each
    failed request, so that a direct probe can follow immediately.
    """

    def __init__(self, settings: BreakerSettings, now: float) -> None:
        self.state = OPEN
        self.reason = NO_ANSWER
        self.cause = START
        """The cause of the last opening."""
        self.gone = False
        """Whether the last probe's connection was refused, so that no process listens there."""
        self.hung = False
        """Whether the engine has made no progress for its hang limit."""
        self.since = now
        self.answered = False
        """Whether the engine was ever healthy."""
        self.trips = 0
        self.rejections = 0
        """Consecutive requests that this engine rejected and another engine might have accepted."""
        self.unsure = False
        """Whether all engines gave the same error for its last request, so that the request can be the cause."""
        self.contradicted = False
        """Whether another engine accepted a request that this one rejected, since this one last accepted one."""
        self.on_change: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self._settings = settings
        self._counts = {CONNECT: 0, TIMEOUT: 0, HTTP_5XX: 0}
        self._failed_probes = 0
        self._ejections = 0
        self._hold_until = now

    @property
    def accepts(self) -> bool:
        """Return whether the engine can receive new work."""
        return self.state != OPEN

    @property
    def lost(self) -> bool:
        """Return whether no result is expected: the engine answers no probe, or exceeded its hang limit."""
        return self.state == OPEN and (self.hung or self.cause in (START, SILENT))

    @property
    def away(self) -> bool:
        """Return whether the engine is out for a cause after which it may return as another process."""
        return self.state == OPEN and self.cause not in SAME_PROCESS

    @property
    def stalled(self) -> bool:
        """Return whether it is out because its requests had no results. Only a sign of work closes the breaker."""
        return self.state == OPEN and self.cause == NO_PROGRESS

    @property
    def paused(self) -> bool:
        """Return whether it is out because it reports itself as idle."""
        return self.state == OPEN and self.cause == PAUSED

    @property
    def excusable(self) -> bool:
        """Return whether it may be alive, so that it receives work if no other engine is available."""
        return self.answered and not self.gone and self.cause not in (PAUSED, THROTTLED)

    @property
    def outlier(self) -> bool:
        """Return whether it is out although it answers, because its answers are errors."""
        return self.state == OPEN and self.cause in (HTTP_5XX, HTTP_4XX, THROTTLED)

    @property
    def doubted(self) -> bool:
        """Return whether its last answers were errors, so that a retry goes to other engines first."""
        return self.rejections > 0 or self.unsure or self.outlier

    @property
    def suspect(self) -> bool:
        """Return whether anything failed since its last success, so that a direct probe is due."""
        return self.state != CLOSED or self._failed_probes > 0 or any(self._counts.values())

    def record_failure(self, kind: str, now: float, *, shared: bool = False) -> None:
        """Count a failed request: connect, timeout, http_5xx or broken_stream. Open at the limit.

        `shared`: other engines fail too, so this one stays in rotation.
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
        """Count a request rejected with 401, 403, 404, 408 or 425. Open at the limit unless others reject too."""
        if self.state == OPEN:
            return
        self.rejections += 1
        if not shared and (self.state == HALF_OPEN or self.rejections >= self._settings.rejections):
            words = counted.count(self.rejections, "request was", "requests in a row were")
            self._open(HTTP_4XX, f"{words} rejected with {status}", now)

    def record_throttle(self, pause_s: float, now: float) -> None:
        """Open for the pause that the engine requested. This is no ejection and does not lengthen later ones."""
        if self.state != OPEN:
            self._open(THROTTLED, f"it is busy and gets a pause of {pause_s:.0f} s", now)
            self._hold_until = now + pause_s

    def forgive(self, kind: str, now: float) -> None:
        """Revoke one error, because all engines gave the same answer to the request.

        Retries avoid the engine until a request succeeds. If it is broken, errors of requests that other engines answer
        will count.
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
        """Open because its requests have no results. Running requests stay there."""
        if self.state != OPEN:
            self._open(NO_PROGRESS, reason, now)

    def record_hang(self, reason: str, now: float) -> None:
        """Mark the engine as lost: it has made no progress for its hang limit."""
        if self.state != OPEN:
            self._open(NO_PROGRESS, reason, now)
        if not self.lost:
            self.cause, self.hung = NO_PROGRESS, True
            self._change(OPEN, reason, now)

    def record_success(self, now: float) -> None:
        """Record a sign of work. Close a half-open breaker, or one that opened for lack of signs."""
        self._reset_counts()
        self.contradicted = False
        disproved = self.state == OPEN and (self.cause == NO_PROGRESS or (self.cause == SILENT and not self.gone))
        if self.state == HALF_OPEN or disproved:
            self._close(now)

    def observe_probe(
        self, serves: bool, reason: str, now: float, *, refused: bool = False, cause: str = SILENT
    ) -> None:
        """Record the result of the gateway's own health probe.

        `refused`: the connection was refused, which needs no confirmation by a second probe. `cause`: the cause of a
        failure.
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
            raise AssertionError("accepts work for an engine that never answered")
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
        """Set cause and reason from the newest probe. An outlier that died counts as lost from this probe."""
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
