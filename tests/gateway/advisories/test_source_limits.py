"""How much a source may ask for: a bucket per API key, and less the more of its advisories are spurious."""

from __future__ import annotations

from gateway.advisories.source_limits import BURST, MAX_SOURCES, PER_S, SourceLimits
from planning.kv_orders.planner_trust import TRIAL_S


def test_a_burst_is_taken_and_then_so_many_per_second() -> None:
    limits = SourceLimits()
    assert all(limits.take("a", "k", 0.0) == 0.0 for _ in range(int(BURST)))
    assert 0.0 < limits.take("a", "k", 0.0) <= 1.0 / PER_S
    taken = sum(limits.take("a", "k", 1.0) == 0.0 for _ in range(1000))
    assert taken == PER_S
    assert limits.take("a", "other", 1.0) == limits.take("b", "k", 1.0) == 0.0


def test_a_source_of_spurious_advisories_moves_little_and_last() -> None:
    limits = SourceLimits()
    good, bad = limits.rank("a", "good", 1, 0.0), limits.rank("a", "bad", 1, 0.0)
    assert good == bad
    for _ in range(40):
        limits.judged("a", "good", True, 0.0)
        limits.judged("a", "bad", False, 0.0)
    assert limits.rank("a", "good", 1, 0.0) < limits.rank("a", "bad", 0, 0.0)
    assert limits.may_move("a", "good", 0.0)
    assert [limits.may_move("a", "bad", at) for at in (0.0, 1.0, TRIAL_S)] == [True, False, True]
    for _ in range(20):
        limits.judged("a", "bad", True, 0.0)
    assert all(limits.may_move("a", "bad", TRIAL_S + 1) for _ in range(3))


def test_the_sources_are_bounded() -> None:
    limits = SourceLimits()
    for number in range(MAX_SOURCES + 10):
        limits.take("a", f"k-{number}", 0.0)
    assert len(limits) == MAX_SOURCES
