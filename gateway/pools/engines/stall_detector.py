"""Detects engines that accept requests without producing results, from this gateway's requests and the engines'
counters.

Lack of progress is first a suspicion: an engine that compiles, builds a grammar or encodes images behaves the same
(docs/decisions/0057-slow-is-not-dead.md). For a single stalled attempt see gateway/proxy/progress_guard.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Literal

import msgspec

from gateway.pools.engines.engine_progress import PREFILL_SHARE, WatchedEngine, hang_limit_s
from routing.values.counted import count

LONGEST_STEP_S = 1.0
"""Maximum seconds that count between two evaluations, because a stall of this process is no evidence about the engines.
"""
OTHERS_WORK = 2.0
"""Factor of the limit if the engine holds requests of other senders, whose prefills are unknown here."""
DISPROVED = 2.0
"""Factor of the patience after the engine has disproved a suspicion by a trial."""

Verdict = Literal["late", "suspected", "hung"]
LATE: Verdict = "late"
SUSPECTED: Verdict = "suspected"
HUNG: Verdict = "hung"


class Seen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One engine at one time."""

    work: WatchedEngine
    role: str = "mixed"
    holds: int | None = None
    """Requests that the engine reports; None: unknown."""
    counted: float | None = None
    """Tokens counted by the engine, from recent metrics; None: unknown."""
    accepts: bool = True
    suspected: bool = False
    """Whether the engine is out for lack of progress."""


class Stall(msgspec.Struct, frozen=True, gc=False):
    """One engine without progress.

    late: its counters should be read. suspected: it should get no new work. hung: no result is expected.
    """

    engine_id: str
    verdict: Verdict
    reason: str


class _Silence(msgspec.Struct, gc=False):
    """The last readings of one engine. Mutable: a suspicion is recorded in it."""

    signs: int
    counted: float | None
    still_s: float = 0.0
    """Seconds without a sign of work although the engine has work."""
    since_sign_s: float = inf
    """Seconds without a sign, with or without work."""
    patience: float = 1.0
    """Multiple of its limit after which the engine is suspected."""
    suspected: bool = False


class StallWatch:
    """Stall detection for one pool's engines. Mutable: the last readings of each engine, and their time.

    An engine is suspected only while another engine of its role progresses, and at most half of the pool is suspected:
    otherwise no engine could take over the work.
    """

    def __init__(
        self,
        stall_s: float,
        hang_s: float,
        vouches: Callable[[float, float], bool] = lambda _since_s, _now: True,
    ) -> None:
        """`vouches` returns whether this process could receive from engines between two times."""
        self._stall_s = stall_s
        self._hang_s = hang_s
        self._vouches = vouches
        self._silences: dict[str, _Silence] = {}
        self._evaluated_at: float | None = None

    def moves(self, engine_id: str) -> bool:
        """Return whether the engine has just shown a sign of work."""
        silence = self._silences.get(engine_id)
        return silence is not None and silence.since_sign_s == 0.0

    def evaluate(self, engines: Mapping[str, Seen], now: float) -> Iterator[Stall]:
        """Yield engines without progress, longest silence first."""
        self._update(engines, now)
        room = len(engines) // 2 - sum(seen.suspected for seen in engines.values())
        left = sum(seen.accepts for seen in engines.values())
        for engine_id in sorted(self._silences, key=lambda item: (-self._silences[item].still_s, item)):
            seen, silence = engines[engine_id], self._silences[engine_id]
            still_s, what = silence.still_s, _in_words(seen.work, silence.still_s)
            hang_s = hang_limit_s(self._hang_s, seen.work.longest_start_s, seen.work.longest_prefill_s)
            if still_s >= hang_s:
                yield Stall(engine_id, HUNG, f"{what}, which is the hang limit")
                continue
            limit_s = self._limit_s(seen)
            # The patience doubles with each disproof; half of the hang limit bounds it.
            if still_s < max(limit_s, min(silence.patience * limit_s, hang_s / 2)):
                continue
            yield Stall(engine_id, LATE, what)
            may = seen.accepts and seen.work.streams > 0 and room > 0 and left > 1
            if may and self._others_move(engines, engine_id, still_s):
                room, left, silence.suspected = room - 1, left - 1, True
                yield Stall(engine_id, SUSPECTED, f"suspected: {what}, while other engines progressed")

    def _update(self, engines: Mapping[str, Seen], now: float) -> None:
        step_s, since_s = 0.0, self._evaluated_at
        # While the loop was away it could read no sign, so that a missing one proves nothing.
        if since_s is not None and self._vouches(since_s, now):
            step_s = min(now - since_s, LONGEST_STEP_S)
        self._evaluated_at = now
        known, self._silences = self._silences, {}
        for engine_id, seen in engines.items():
            silence = known.get(engine_id) or _Silence(seen.work.signs, seen.counted)
            self._silences[engine_id] = _after(silence, seen, step_s)

    def _others_move(self, engines: Mapping[str, Seen], engine_id: str, still_s: float) -> bool:
        """Return whether another engine of the role has shown a sign since this one last progressed."""
        role = engines[engine_id].role
        return any(
            other.since_sign_s < still_s and engines[name].role == role
            for name, other in self._silences.items()
            if name != engine_id
        )

    def _limit_s(self, seen: Seen) -> float:
        limit_s = self._stall_s + PREFILL_SHARE * seen.work.longest_prefill_s
        return limit_s * (OTHERS_WORK if seen.holds is not None and seen.holds > seen.work.requests else 1.0)


def _after(silence: _Silence, seen: Seen, step_s: float) -> _Silence:
    """Return the silence after a further `step_s` seconds."""
    counts = None not in (seen.counted, silence.counted) and seen.counted != silence.counted
    signs = seen.work.signs != silence.signs
    disproved = silence.suspected and not seen.suspected and not signs
    judged = seen.work.streams > 0 or (seen.work.requests > 0 and seen.counted is not None)
    return _Silence(
        seen.work.signs,
        seen.counted if seen.counted is not None else silence.counted,
        0.0 if signs or counts or disproved or not judged else silence.still_s + step_s,
        0.0 if signs or counts else silence.since_sign_s + step_s,
        1.0 if signs else silence.patience * (DISPROVED if disproved else 1.0),
        seen.suspected,
    )


def _in_words(work: WatchedEngine, still_s: float) -> str:
    if work.streams:
        return f"{count(work.streams, 'stream has', 'streams have')} produced nothing for {still_s:.1f} s"
    return f"{count(work.requests, 'request has', 'requests have')} moved no counter for {still_s:.1f} s"
