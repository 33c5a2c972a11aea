"""Work that prefixes cause on engines, for planners that spread them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.contracts.fleet_sample import PrefixCounts
from routing.values.decision import Decision

SPAN_S = 15.0
"""Work is counted over the last one to two spans."""
MAX_KEYS = 4096
"""Limit of prefixes counted per span. Further ones are not counted."""
SHOWN = 16


class _Counted(msgspec.Struct):
    """One prefix within one span. Mutable."""

    tokens: int = 0
    recomputed: int = 0
    work_s: dict[str, float] = msgspec.field(default_factory=dict)


class HotPrefixes:
    """Counts one pool's dispatches by prefix. Mutable: the current and the previous span."""

    def __init__(self) -> None:
        self._now: dict[int, _Counted] = {}
        self._before: dict[int, _Counted] = {}
        self._began_s = 0.0

    def dispatched(self, key: int, decision: Decision, recomputed: int, now: float) -> None:
        """Count a dispatch under its prefix; `now` is monotonic seconds."""
        self._turn(now)
        counted = self._now.get(key)
        if counted is None:
            if len(self._now) >= MAX_KEYS:
                return
            counted = self._now[key] = _Counted()
        counted.tokens = max(counted.tokens, decision.hit_tokens)
        counted.recomputed += recomputed
        counted.work_s[decision.engine_id] = counted.work_s.get(decision.engine_id, 0.0) + decision.compute_s

    def top(
        self, now: float, candidates: Callable[[int], tuple[str, ...]] = lambda _key: ()
    ) -> tuple[PrefixCounts, ...]:
        """Return the SHOWN prefixes with the most work, busiest first."""
        self._turn(now)
        work: dict[int, float] = {}
        for span in (self._before, self._now):
            for key, counted in span.items():
                work[key] = work.get(key, 0.0) + sum(counted.work_s.values())
        busiest = sorted(work, key=lambda key: (-work[key], key))[:SHOWN]
        return tuple(self._counts(key, candidates(key)) for key in busiest if work[key] > 0)

    def _counts(self, key: int, candidates: tuple[str, ...]) -> PrefixCounts:
        spans = [span[key] for span in (self._before, self._now) if key in span]
        work_s: dict[str, float] = {}
        for counted in spans:
            for engine_id, seconds in counted.work_s.items():
                work_s[engine_id] = work_s.get(engine_id, 0.0) + seconds
        return PrefixCounts(
            key=f"{key:016x}",
            work_s_by_engine=work_s,
            candidates=candidates,
            tokens=max(item.tokens for item in spans),
            recomputed_tokens=sum(item.recomputed for item in spans),
        )

    def _turn(self, now: float) -> None:
        if now - self._began_s >= SPAN_S:
            # After a whole span without a call, the last counts are too old.
            self._before = self._now if now - self._began_s < 2 * SPAN_S else {}
            self._now = {}
            self._began_s = now
