"""Standing still is noticed by the streams that bring nothing, and never where it is no fault of the engine."""

from __future__ import annotations

from gateway.engines.engine_progress import Watched
from gateway.engines.stall_detector import OTHERS_WORK, PREFILL_SHARE, StallWatch

STALL_S = 2.5
ALL = ("a", "b", "c", "d")


def busy(signs: int, *, streams: int = 2, longest_s: float = 0.0) -> Watched:
    return Watched(streams, streams, signs, longest_s)


class Pool:
    """Four engines of which `hung` bring nothing from second 0 on; looked at twice a second."""

    def __init__(self, hung: tuple[str, ...], **facts: float) -> None:
        self.watch = StallWatch(STALL_S)
        self.facts, self.hung = facts, hung
        self.said: dict[str, int | None] = {}
        self.out: set[str] = set()
        self.engines = ALL

    def until_out(self, limit_s: float = 20.0, step_s: float = 0.5) -> dict[str, float]:
        """Return when each engine was taken out."""
        found: dict[str, float] = {}
        for tick in range(int(limit_s / step_s) + 1):
            watched = {
                each: busy(0, **self.facts) if each in self.hung else busy(tick)  # type: ignore[arg-type]
                for each in self.engines
            }
            accepting = [each for each in self.engines if each not in self.out]
            for engine_id, _ in self.watch.look(watched, self.said, accepting, self.out, tick * step_s):
                found[engine_id] = tick * step_s
                self.out.add(engine_id)
        return found


def test_an_engine_whose_streams_bring_nothing_is_out_in_time() -> None:
    assert Pool(("b",)).until_out() == {"b": STALL_S}


def test_a_long_prefill_is_given_its_time() -> None:
    assert Pool(("b",), longest_s=4.0).until_out() == {"b": STALL_S + PREFILL_SHARE * 4.0}


def test_work_of_others_gives_it_more_time() -> None:
    pool = Pool(("b",))
    pool.said = {"b": 3}
    assert pool.until_out() == {"b": OTHERS_WORK * STALL_S}


def test_an_idle_engine_never_stalls() -> None:
    assert Pool(("b",), streams=0).until_out() == {}


def test_half_of_the_pool_at_most_is_out() -> None:
    assert sorted(Pool(ALL).until_out()) == ["a", "b"]


def test_an_engine_alone_is_left_in() -> None:
    pool = Pool(("a",))
    pool.engines = ("a",)
    assert pool.until_out() == {}


def test_a_pause_of_this_process_is_not_held_against_engines() -> None:
    watch = StallWatch(STALL_S)
    watched = {each: busy(0) for each in ALL}
    assert list(watch.look(watched, {}, ALL, (), 0.0)) == []
    assert list(watch.look(watched, {}, ALL, (), 60.0)) == []


def test_the_reason_says_what_was_seen() -> None:
    watch = StallWatch(0.5)
    facts = {"a": busy(0), "b": busy(0, streams=0)}
    list(watch.look(facts, {}, "ab", (), 0.0))
    assert list(watch.look(facts, {}, "ab", (), 0.7)) == [("a", "2 streams have produced nothing for 0.7 s")]


def test_time_that_this_process_missed_is_no_silence_of_the_engines() -> None:
    away = StallWatch(STALL_S, lambda since_s, _now: since_s >= 10.0)
    found = {}
    for tick in range(40):
        watched = {each: busy(0 if each == "b" else tick) for each in ALL}
        for engine_id, _ in away.look(watched, {}, ALL, (), tick * 0.5):
            found.setdefault(engine_id, tick * 0.5)
    assert found == {"b": 10.0 + STALL_S}
