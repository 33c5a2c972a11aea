"""One engine's progress on this gateway's requests: whether they advance, and how fast.

Engine health uses it (planning.engine_health.engine_health), because a stalled engine can still answer /health.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from gateway.contracts.fleet_sample import EngineCounts
from planning.facts.engine_speed import EngineSpeed

MAX_FOLLOWED = 4096
"""Limit of requests followed at one time. Beyond it, the oldest are no longer followed."""
ANSWERS_JUDGED = 64
ANSWERS_COUNT_S = 60.0
"""Age limit in seconds of the last answers that judge an engine."""
PREFILL_SHARE = 1.5
"""An engine can be silent for this multiple of its longest prefill, because it decodes nothing meanwhile."""
STARTS = 2.0
"""An engine can make no progress for this multiple of its longest start, if that exceeds the hang limit."""
TPOT_WEIGHT = 1 / 8
"""Weight of one answer in the engine's mean TPOT."""
FORGOTTEN_S = 1800.0
"""Seconds after which a request without a reported end is no longer followed."""


class _Followed(msgspec.Struct, gc=False):
    """One request on the engine. Mutable: its first token."""

    dispatched_s: float
    expected_s: float
    """Expected seconds from dispatch to first token, including the work ahead of it."""
    prefill_s: float
    first_token_s: float | None = None
    streams: bool = False
    whole: bool = False


class WatchedEngine(msgspec.Struct, frozen=True, gc=False):
    """One engine's work for this gateway, and its results so far."""

    requests: int
    """Requests on the engine."""
    streams: int
    """Number of these requests whose answers are streamed."""
    signs: int
    """First tokens, chunks and ends so far."""
    longest_prefill_s: float
    """Seconds of the longest prefill at the engine's usual speed. An answer in one piece counts with its prompt."""
    longest_start_s: float = 0.0
    """Longest seconds from dispatch to first token so far."""


def hang_limit_s(at_least_s: float, longest_start_s: float, prefill_s: float) -> float:
    """Return the seconds without progress after which an engine counts as hung.

    `longest_start_s` is its longest start so far, `prefill_s` the longest prefill that it has to do.
    """
    return max(at_least_s, STARTS * longest_start_s) + PREFILL_SHARE * prefill_s


class EngineProgress:
    """One engine's requests and timings. Mutable: all of it; `now` is monotonic seconds.

    It is reset with each incarnation of the engine, whose requests end with it. `vouches` returns whether this process
    could receive from the engine between two times; a period that it missed is no evidence about the engine.
    """

    def __init__(self, vouches: Callable[[float, float], bool] = lambda _since_s, _now: True) -> None:
        self._vouches = vouches
        self.first_tokens = 0
        self.chunks = 0
        self._failures = 0
        self._reported: dict[str, int] = {}
        """Tenant → consecutive failures reported only by this tenant."""
        self._requests: dict[str, _Followed] = {}
        self._speed = EngineSpeed()
        self.longest_start_s = 0.0
        self.tpot_s: float | None = None
        """Moving mean of the seconds per output token. For answers in one piece, this includes their prefill."""
        self._answers: deque[tuple[float, bool]] = deque(maxlen=ANSWERS_JUDGED)
        """(Time of the answer, whether it was a rejection) of the last requests."""

    @property
    def failures_in_row(self) -> int:
        """Return the number of consecutive failed requests.

        Of failures reported only by tenants, it counts the run that remains without any one tenant.
        """
        reported = self._reported.values()
        return self._failures + sum(reported) - max(reported, default=0)

    def reported(self, tenant_id: str, *, failed: bool) -> None:
        """Record a tenant's report of a request that the gateway did not see."""
        if failed:
            self._reported[tenant_id] = self._reported.get(tenant_id, 0) + 1
        else:
            self._reported.pop(tenant_id, None)

    def _succeeded(self) -> None:
        self._failures = 0
        self._reported.clear()

    def dispatched(self, request_id: str, prefill_s: float, now: float) -> None:
        """Record a request dispatched to the engine, with `prefill_s` expected seconds of prefill."""
        if len(self._requests) >= MAX_FOLLOWED:
            del self._requests[next(iter(self._requests))]
        ahead_s = sum([item.prefill_s for item in self._requests.values() if item.first_token_s is None])
        self._requests[request_id] = _Followed(now, self._speed.expects(prefill_s, now, ahead_s), prefill_s)

    def follows(self, request_id: str) -> bool:
        """Return whether the request is still on the engine."""
        return request_id in self._requests

    def first_token(self, request_id: str, now: float) -> None:
        """Record a request's first token."""
        self.first_tokens += 1
        self._succeeded()
        request = self._requests.get(request_id)
        if request is None or request.first_token_s is not None:
            return
        request.first_token_s = now
        if self._vouches(request.dispatched_s, now):
            self._speed.first_token(now - request.dispatched_s, request.expected_s, now)
            self.longest_start_s = max(self.longest_start_s, now - request.dispatched_s)

    def streams(self, request_id: str) -> None:
        """Record that a request's answer is streamed, so that a pause is significant."""
        request = self._requests.get(request_id)
        if request is not None:
            request.streams = True

    def whole(self, request_id: str) -> None:
        """Record that a request's answer comes in one piece, so that its first token is not visible."""
        request = self._requests.get(request_id)
        if request is not None:
            request.whole = True

    @property
    def signs(self) -> int:
        """Return the number of first tokens, chunks and ends so far."""
        return self.first_tokens + self.chunks

    def watched(self) -> WatchedEngine:
        """Return the counts that show whether the engine has stalled."""
        streams = [item for item in self._requests.values() if item.streams]
        longest_s = max((item.prefill_s for item in self._requests.values() if item.first_token_s is None), default=0.0)
        usual = max(1.0, self._speed.usual())
        return WatchedEngine(len(self._requests), len(streams), self.signs, longest_s * usual, self.longest_start_s)

    def completed(self, request_id: str, output_tokens: int | None, now: float) -> None:
        """Record the end of an answer."""
        self._answers.append((now, False))
        self.chunks += 1
        self._succeeded()
        request = self._requests.pop(request_id, None)
        # A single token shows no time between tokens.
        if request is None or output_tokens is None or output_tokens < 2:
            return
        begun_s = request.dispatched_s if request.first_token_s is None else request.first_token_s
        if not self._vouches(begun_s, now):
            return
        tpot_s = (now - begun_s) / (output_tokens - 1)
        self.tpot_s = tpot_s if self.tpot_s is None else self.tpot_s + TPOT_WEIGHT * (tpot_s - self.tpot_s)
        if request.first_token_s is not None:
            self._speed.answered(tpot_s, now)

    def rejected(self, now: float) -> None:
        """Record that the engine answered a request with 4xx."""
        self._answers.append((now, True))

    def forgive(self) -> None:
        """Revoke one failure, because the request caused it."""
        self._failures = max(0, self._failures - 1)

    def dropped(self, request_id: str, *, failed: bool = False) -> None:
        """Record the end of a request without an answer. `failed`: the engine is at fault."""
        self._failures += failed
        self._requests.pop(request_id, None)

    def counts(self, now: float, event_gaps: int) -> EngineCounts:
        """Return the current counts."""
        self._forget_old(now)
        requests = list(self._requests.values())
        unanswered = [item for item in requests if item.first_token_s is None]
        # The first token of an answer that comes in one piece is not visible, so it is never late.
        prefilling = [item for item in unanswered if not item.whole]
        waited = [(item.dispatched_s, item.expected_s) for item in prefilling if self._vouches(item.dispatched_s, now)]
        slowness, slowness_samples = self._speed.slowness(waited, now)
        tpot_s, tpot_samples = self._speed.tpot(now)
        answers = [rejected for at_s, rejected in self._answers if at_s > now - ANSWERS_COUNT_S]
        return EngineCounts(
            dispatched=len(requests),
            prefilling=len(prefilling),
            streaming=sum(item.streams and item.first_token_s is not None for item in requests),
            first_tokens_total=self.first_tokens,
            chunks_total=self.chunks,
            longest_prefill_s=max((item.prefill_s for item in unanswered), default=0.0),
            failures_in_row=self.failures_in_row,
            rejected_share=sum(answers) / len(answers) if answers else None,
            rejected_samples=len(answers),
            slowness=slowness,
            slowness_samples=slowness_samples,
            tpot_s=tpot_s,
            tpot_samples=tpot_samples,
            event_gaps_total=event_gaps,
        )

    def _forget_old(self, now: float) -> None:
        # In the order of their dispatches: the first young one ends the scan.
        for request_id, request in list(self._requests.items()):
            if request.dispatched_s >= now - FORGOTTEN_S:
                break
            del self._requests[request_id]
