"""What one engine makes of the requests that this gateway gave it: whether they move, and how fast.

Engine health judges by it (planning.engine_health): an engine can answer /health and stand still.
"""

from __future__ import annotations

import msgspec

from gateway.fleet_sample import EngineCounts
from planning.engine_speed import EngineSpeed

MAX_STANDING = 4096
"""Requests followed at one time; of more the oldest are no longer followed."""
FORGOTTEN_S = 1800.0
"""A request that nobody ended within this time is no longer followed."""


class _Standing(msgspec.Struct, gc=False):
    """One request on the engine. Mutable: it gets its first token."""

    granted_s: float
    expected_s: float
    """Seconds from grant to first token, what was ahead of it included."""
    prefill_s: float
    first_token_s: float | None = None
    streams: bool = False
    whole: bool = False


class Watched(msgspec.Struct, frozen=True, gc=False):
    """What one engine has to do for us, and what came of it so far."""

    standing: int
    """Requests there."""
    streams: int
    """Those of them whose answers come piece by piece."""
    signs: int
    """First tokens, pieces and ends that were ever seen."""
    longest_prefill_s: float
    """The longest prefill there as the engine usually takes it; what comes in whole counts with its prompt."""


class EngineProgress:
    """One engine's requests and timings. Mutable state: all of it; `now` is monotonic seconds.

    Begins anew with each incarnation of the engine, whose requests are gone with it.
    """

    def __init__(self) -> None:
        self.first_tokens = 0
        self.chunks = 0
        self.failures_in_row = 0
        self._standing: dict[str, _Standing] = {}
        self._speed = EngineSpeed()

    def granted(self, request_id: str, prefill_s: float, now: float) -> None:
        """Note a request that is given to the engine and should prefill for `prefill_s`."""
        if len(self._standing) >= MAX_STANDING:
            del self._standing[next(iter(self._standing))]
        self._standing[request_id] = _Standing(now, self._speed.expects(prefill_s, now), prefill_s)

    def follows(self, request_id: str) -> bool:
        """Return whether the request is the engine's to get on with."""
        return request_id in self._standing

    def first_token(self, request_id: str, now: float) -> None:
        """Note a request's first token."""
        self.first_tokens += 1
        self.failures_in_row = 0
        standing = self._standing.get(request_id)
        if standing is None or standing.first_token_s is not None:
            return
        standing.first_token_s = now
        self._speed.first_token(now - standing.granted_s, standing.expected_s, now)

    def streams(self, request_id: str) -> None:
        """Note that a request's answer comes piece by piece, so that a pause of it means something."""
        standing = self._standing.get(request_id)
        if standing is not None:
            standing.streams = True

    def whole(self, request_id: str) -> None:
        """Note that a request's answer comes in one piece, so that nobody sees its first token."""
        standing = self._standing.get(request_id)
        if standing is not None:
            standing.whole = True

    def watched(self) -> Watched:
        """Return what tells whether the engine stands still."""
        streams = [each for each in self._standing.values() if each.streams]
        longest_s = max((each.prefill_s for each in self._standing.values() if each.first_token_s is None), default=0.0)
        usual = max(1.0, self._speed.usual())
        return Watched(len(self._standing), len(streams), self.first_tokens + self.chunks, longest_s * usual)

    def completed(self, request_id: str, output_tokens: int | None, now: float) -> None:
        """Note the end of an answer."""
        self.chunks += 1
        self.failures_in_row = 0
        standing = self._standing.pop(request_id, None)
        if standing is None or standing.first_token_s is None or output_tokens is None or output_tokens < 2:
            return
        self._speed.answered((now - standing.first_token_s) / (output_tokens - 1), now)

    def dropped(self, request_id: str, *, failed: bool = False) -> None:
        """Note the end of a request without an answer; `failed`: by the engine's fault."""
        self.failures_in_row += failed
        self._standing.pop(request_id, None)

    def look(self, now: float, event_gaps: int) -> EngineCounts:
        """Return the figures of this moment."""
        self._forget_old(now)
        standing = list(self._standing.values())
        prefilling = [each for each in standing if each.first_token_s is None]
        # Nobody sees the first token of an answer that comes in whole, so it is never late.
        waited = [(each.granted_s, each.expected_s) for each in prefilling if not each.whole]
        slowness, slowness_samples = self._speed.slowness(waited, now)
        tbt_s, tbt_samples = self._speed.tbt(now)
        return EngineCounts(
            granted=len(standing),
            prefilling=len(prefilling),
            streaming=sum(each.streams and each.first_token_s is not None for each in standing),
            first_tokens_total=self.first_tokens,
            chunks_total=self.chunks,
            longest_prefill_s=max((each.prefill_s for each in prefilling), default=0.0),
            failures_in_row=self.failures_in_row,
            slowness=slowness,
            slowness_samples=slowness_samples,
            tbt_s=tbt_s,
            tbt_samples=tbt_samples,
            event_gaps_total=event_gaps,
        )

    def _forget_old(self, now: float) -> None:
        # In the order of their grants: the first young one ends the look.
        for request_id, standing in list(self._standing.items()):
            if standing.granted_s >= now - FORGOTTEN_S:
                break
            del self._standing[request_id]
