"""A stall is a suspicion while others progress and a hang after the hang limit; any progress clears it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from gateway.pools.engines.engine_progress import PREFILL_SHARE, STARTS, WatchedEngine
from gateway.pools.engines.stall_detector import (
    DISPROVED,
    HUNG,
    LATE,
    OTHERS_WORK,
    SUSPECTED,
    Seen,
    StallWatch,
)

STALL_S, HANG_S = 2.5, 30.0
ALL = ("a", "b", "c", "d")


def busy(
    signs: int, *, streams: int = 2, requests: int | None = None, longest_s: float = 0.0, start_s: float = 0.0
) -> WatchedEngine:
    return WatchedEngine(streams if requests is None else requests, streams, signs, longest_s, start_s)


class Pool:
    """Engines of which `still` produce nothing from second 0 on; judged twice a second.

    `facts` are those of the still ones; `others` what the rest does: a function of the tick.
    """

    def __init__(self, *still: str, **facts: Any) -> None:
        self.watch = StallWatch(STALL_S, HANG_S)
        self.still, self.facts = still, facts
        self.engines: tuple[str, ...] = ALL
        self.roles: dict[str, str] = {}
        self.holds: dict[str, int] = {}
        self.counted: Callable[[str, int], float | None] = lambda _name, _tick: None
        self.others: Callable[[int], WatchedEngine] = busy
        self.trial_s: float | None = None
        """A suspected engine answers a trial so soon; None: never."""
        self.suspected: dict[str, float] = {}

    def seen(self, name: str, tick: int) -> Seen:
        return Seen(
            work=busy(0, **self.facts) if name in self.still else self.others(tick),
            role=self.roles.get(name, "mixed"),
            holds=self.holds.get(name),
            counted=self.counted(name, tick),
            accepts=name not in self.suspected,
            suspected=name in self.suspected,
        )

    def until(self, seconds: float, step_s: float = 0.5) -> dict[str, list[tuple[float, str]]]:
        """Return the times and verdicts of each engine."""
        verdicts: dict[str, list[tuple[float, str]]] = {}
        for tick in range(int(seconds / step_s) + 1):
            now = tick * step_s
            for name, since_s in list(self.suspected.items()):
                if self.trial_s is not None and now - since_s >= self.trial_s:
                    del self.suspected[name]
            for stall in self.watch.evaluate({name: self.seen(name, tick) for name in self.engines}, now):
                verdicts.setdefault(stall.engine_id, []).append((now, stall.verdict))
                if stall.verdict == SUSPECTED:
                    self.suspected[stall.engine_id] = now
        return verdicts

    def first(self, verdict: str, seconds: float = 20.0) -> dict[str, float]:
        """Return the time of this verdict's first occurrence per engine."""
        return {
            name: next(at for at, item in all_of if item == verdict)
            for name, all_of in self.until(seconds).items()
            if verdict in [item for _, item in all_of]
        }


def test_an_engine_whose_streams_produce_nothing_is_suspected_in_time() -> None:
    assert Pool("b").first(SUSPECTED) == {"b": STALL_S}


def test_a_long_prefill_gets_more_time() -> None:
    assert Pool("b", longest_s=4.0).first(SUSPECTED) == {"b": STALL_S + PREFILL_SHARE * 4.0}


def test_work_of_other_requests_extends_the_time() -> None:
    pool = Pool("b")
    pool.holds = {"b": 3}
    assert pool.first(SUSPECTED) == {"b": OTHERS_WORK * STALL_S}


def test_an_idle_engine_never_stalls() -> None:
    assert Pool("b", streams=0).until(100.0) == {}


def test_at_most_half_of_the_pool_is_suspected() -> None:
    assert len(Pool("a", "b", "c").first(SUSPECTED)) == 2


@pytest.mark.parametrize("which", ["alone", "others idle", "others still", "other role"])
def test_an_engine_is_suspected_only_while_another_of_its_role_progresses(which: str) -> None:
    pool = Pool("a")
    if which == "alone":
        pool.engines = ("a",)
    elif which == "others idle":
        pool.others = lambda _tick: busy(7, streams=0)
    elif which == "others still":
        pool.others = lambda _tick: busy(7)
    else:
        pool.roles = {"a": "prefill", "b": "decode", "c": "decode", "d": "decode"}
    assert pool.first(SUSPECTED, HANG_S - 1.0) == {}


def test_increasing_counters_are_a_sign_of_progress() -> None:
    pool = Pool("b")
    pool.counted = lambda _name, tick: float(tick // 4)
    verdicts = pool.until(10 * HANG_S).get("b", [])
    assert {verdict for _, verdict in verdicts} <= {LATE}, "as where a parser holds tokens back"


def test_the_counters_of_a_late_engine_are_requested() -> None:
    pool = Pool("b")
    assert pool.first(LATE) == {"b": STALL_S}


@pytest.mark.parametrize("which", ["alone", "suspected"])
def test_an_engine_is_hung_after_the_hang_limit_whatever_others_do(which: str) -> None:
    pool = Pool("b")
    if which == "alone":
        pool.engines = ("b",)
    assert pool.first(HUNG, 2 * HANG_S) == {"b": HANG_S}


def test_the_hang_limit_exceeds_the_longest_observed_start_of_the_engine() -> None:
    assert Pool("b", start_s=40.0).first(HUNG, 100.0) == {"b": STARTS * 40.0}
    assert Pool("b", longest_s=40.0).first(HUNG, 100.0) == {"b": HANG_S + PREFILL_SHARE * 40.0}


def test_an_engine_that_passes_trials_is_never_hung_and_suspected_ever_more_rarely() -> None:
    pool = Pool("b")
    pool.trial_s = 0.5
    verdicts = pool.until(10 * HANG_S)["b"]
    suspicions = [at for at, verdict in verdicts if verdict == SUSPECTED]
    pauses = [later - sooner for sooner, later in pairwise(suspicions)]
    assert pauses[:3] == [DISPROVED * STALL_S + 0.5, DISPROVED**2 * STALL_S + 0.5, HANG_S / 2 + 0.5]
    assert {verdict for _, verdict in verdicts} == {LATE, SUSPECTED}


@pytest.mark.parametrize(("counts", "hung"), [(None, {}), (5.0, {"b": HANG_S})])
def test_non_streaming_responses_are_judged_by_counters_alone(counts: float | None, hung: dict[str, float]) -> None:
    pool = Pool("b", streams=0, requests=3)
    pool.counted = lambda name, _tick: counts if name == "b" else None
    verdicts = pool.until(10 * HANG_S).get("b", [])
    assert SUSPECTED not in {verdict for _, verdict in verdicts}
    again = Pool("b", streams=0, requests=3)
    again.counted = pool.counted
    assert again.first(HUNG, 10 * HANG_S) == hung


def test_a_pause_of_this_process_does_not_count_against_engines() -> None:
    watch = StallWatch(STALL_S, HANG_S)
    engines = {item: Seen(work=busy(0)) for item in ALL}
    assert list(watch.evaluate(engines, 0.0)) == []
    assert list(watch.evaluate(engines, 600.0)) == []


def test_the_reason_states_the_observation() -> None:
    watch = StallWatch(0.5, 0.9)
    still, other = Seen(work=busy(0)), Seen(work=busy(0, streams=0))
    list(watch.evaluate({"a": still, "b": other}, 0.0))
    moved = Seen(work=busy(1, streams=0))
    (_, suspected) = watch.evaluate({"a": still, "b": moved}, 0.7)
    assert suspected.reason == "suspected: 2 streams have produced nothing for 0.7 s, while other engines progressed"
    (hung,) = watch.evaluate({"a": Seen(work=busy(0), accepts=False, suspected=True), "b": moved}, 1.0)
    assert hung.reason == "2 streams have produced nothing for 1.0 s, which is the hang limit"


def test_time_that_this_process_missed_does_not_count_as_silence() -> None:
    pool = Pool("b")
    pool.watch = StallWatch(STALL_S, HANG_S, lambda since_s, _now: since_s >= 10.0)
    assert pool.first(SUSPECTED) == {"b": 10.0 + STALL_S}
