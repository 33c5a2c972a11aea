"""The sliding window over a router's counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.pools.traffic.queue_window import MAX_WAITS, QueueWindow
from routing.ledger.router_counts import CountsSeen


def test_the_first_reading_has_no_rates() -> None:
    assert QueueWindow().evaluate(CountsSeen(dispatched_at_once=9), 0.0) is None


def test_rates_count_growth_within_the_window() -> None:
    window = QueueWindow(window_s=10.0)
    window.evaluate(CountsSeen(), 0.0)
    window.evaluate(CountsSeen(100, 50, 60, 20, 10, {"queue_full": 30}), 10.0)
    summary = window.evaluate(CountsSeen(110, 55, 65, 22, 11, {"queue_full": 30, "infeasible": 4}), 20.0)
    assert summary is not None
    assert (summary.dispatched_at_once_per_s, summary.dispatched_waited_per_s) == (1.0, 0.5)
    assert (summary.migrations_per_s, summary.overtaken_per_s) == (0.2, 0.1)
    assert summary.rejections_per_s == {"infeasible": 0.4}


def test_waits_cover_the_window_including_immediate_grants() -> None:
    window = QueueWindow(window_s=4.0)
    window.evaluate(CountsSeen(), 0.0)
    window.dispatched(99.0)
    window.evaluate(CountsSeen(0, 1), 1.0)
    for waited_s in [0.0] * 8 + [2.0, 8.0]:
        window.dispatched(waited_s)
    window.evaluate(CountsSeen(8, 3), 4.0)
    summary = window.evaluate(CountsSeen(8, 3), 5.0)
    assert summary is not None
    assert (summary.wait_mean_s, summary.wait_p90_s) == (1.0, 2.0)
    later = window.evaluate(CountsSeen(8, 3), 9.0)
    assert later is not None
    assert (later.wait_mean_s, later.wait_p90_s) == (None, None)


def test_over_the_limit_the_newest_grants_count() -> None:
    window = QueueWindow()
    window.evaluate(CountsSeen(), 0.0)
    for waited_s in (9.0, *[1.0] * MAX_WAITS):
        window.dispatched(waited_s)
    summary = window.evaluate(CountsSeen(0, MAX_WAITS + 1), 1.0)
    assert summary is not None
    assert (summary.wait_mean_s, summary.dispatched_waited_per_s) == (1.0, MAX_WAITS + 1)


@given(st.lists(st.tuples(st.floats(0.1, 5), st.integers(0, 20), st.lists(st.floats(0, 60), max_size=5)), max_size=30))
def test_rates_and_waits_stay_in_range_and_expire_with_the_window(steps: list[tuple[float, int, list[float]]]) -> None:
    window, now, granted = QueueWindow(window_s=6.0), 0.0, 0
    window.evaluate(CountsSeen(), now)
    for pause_s, more, waits in steps:
        now, granted = now + pause_s, granted + more
        for waited_s in waits:
            window.dispatched(waited_s)
        summary = window.evaluate(CountsSeen(granted), now)
        assert summary is not None
        assert 0.0 <= summary.dispatched_at_once_per_s <= granted
        assert (summary.wait_mean_s is None) == (summary.wait_p90_s is None)
        assert 0.0 <= (summary.wait_p90_s or 0.0) <= 60.0
    quiet = [window.evaluate(CountsSeen(granted), now + pause_s) for pause_s in (6.0, 12.0)]
    assert quiet[1] is not None
    assert (quiet[1].dispatched_at_once_per_s, quiet[1].wait_mean_s) == (0.0, None)
