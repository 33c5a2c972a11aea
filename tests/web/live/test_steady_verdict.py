"""A finding stays long enough to be read, also by a screen reader, but never longer than it is true."""

from __future__ import annotations

from itertools import pairwise

from web.live.verdict import STAYS_S, FleetVerdict, SteadyVerdict

ONE, OTHER = FleetVerdict("warn", "e-08 is hot.", "One."), FleetVerdict("bad", "Requests are late.", "Other.")


def test_findings_that_stay_true_alternate_at_most_once_per_interval() -> None:
    steady = SteadyVerdict()
    orders = [[OTHER, ONE] if step % 2 else [ONE, OTHER] for step in range(41)]
    said = [steady.show(order, 100.0 + step / 2) for step, order in enumerate(orders)]
    changes = [at for at in range(1, 41) if said[at] != said[at - 1]]
    assert changes
    assert all(later - sooner >= 2 * STAYS_S for sooner, later in pairwise(changes))


def test_a_finding_that_is_no_longer_true_is_replaced_at_once() -> None:
    steady = SteadyVerdict()
    assert steady.show([ONE, OTHER], 100.0) == ONE
    assert steady.show([OTHER], 100.5) == OTHER
    assert steady.show([ONE, OTHER], 101.0) == OTHER


def test_verdict_shown_long_enough_is_replaced_at_once() -> None:
    steady = SteadyVerdict()
    assert steady.show([ONE], 100.0) == ONE
    assert steady.show([ONE], 109.0) == ONE
    assert steady.show([OTHER, ONE], 109.5) == OTHER
    assert steady.show([ONE, OTHER], 110.0) == OTHER


def test_clock_set_back_does_not_block_the_verdict() -> None:
    steady = SteadyVerdict()
    steady.show([ONE], 100.0)
    assert steady.show([OTHER, ONE], 50.0) == OTHER


def test_lost_engine_is_shown_at_once_and_for_the_full_interval() -> None:
    lost = FleetVerdict("bad", "e-05 is lost.", "Gone.", "e-05", "lost")
    steady = SteadyVerdict()
    steady.show([ONE], 100.0)
    assert steady.show([lost, ONE], 100.5) == lost
    assert steady.show([OTHER, lost], 101.0) == lost


def test_the_figures_of_a_finding_are_those_of_its_newest_sample() -> None:
    late = FleetVerdict("bad", "Requests are late.", "19 requests late.", late_pool_id="p")
    steady = SteadyVerdict()
    steady.show([late], 100.0)
    newer = FleetVerdict("bad", "Requests are late.", "17 requests late.", late_pool_id="p")
    assert steady.show([newer], 100.5) == newer
    assert steady.show([ONE, newer], 104.5) == newer
    assert steady.show([ONE, newer], 105.0) == ONE
