"""The sentence stays long enough to be read, and to be read out."""

from __future__ import annotations

from itertools import pairwise

from web.live.steady_verdict import STAYS_S, SteadyVerdict
from web.live.verdict import FleetVerdict

ONE, OTHER = FleetVerdict("ok", "No problems.", "One."), FleetVerdict("bad", "e-03 is lost.", "Other.")


def test_it_changes_at_most_once_within_its_time_and_then_says_the_newest() -> None:
    steady = SteadyVerdict()
    said = [steady.show(OTHER if step % 2 else ONE, 100.0 + step / 2) for step in range(41)]
    changes = [at for at in range(1, 41) if said[at] != said[at - 1]]
    assert len(changes) <= 20 / STAYS_S
    assert all(later - sooner >= 2 * STAYS_S for sooner, later in pairwise(changes))
    assert steady.show(OTHER, 200.0) == OTHER


def test_a_sentence_that_stood_long_enough_gives_way_at_once() -> None:
    steady = SteadyVerdict()
    assert steady.show(ONE, 100.0) == ONE
    assert steady.show(ONE, 109.0) == ONE
    assert steady.show(OTHER, 109.5) == OTHER
    assert steady.show(ONE, 110.0) == OTHER


def test_a_clock_that_goes_back_does_not_hold_it() -> None:
    steady = SteadyVerdict()
    steady.show(ONE, 100.0)
    assert steady.show(OTHER, 50.0) == OTHER


def test_a_lost_engine_is_said_at_once_and_stays_as_long_as_any_sentence() -> None:
    lost = FleetVerdict("bad", "e-05 is lost.", "Gone.", "e-05", "lost")
    steady = SteadyVerdict()
    steady.show(ONE, 100.0)
    assert steady.show(lost, 100.5) == lost
    assert steady.show(OTHER, 101.0) == lost
