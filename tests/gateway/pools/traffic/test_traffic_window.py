"""The sliding window over finished requests.

The sliding window over a router's counts.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.queue_window import MAX_WAITS, QueueWindow
from gateway.pools.traffic.traffic_window import CANCELLED, COMPLETED, FAILED, REJECTED, TrafficWindow
from routing.ledger.router_counts import CountsSeen
from tests.gateway.decision_records import ended_record


def test_an_empty_window_has_no_figures() -> None:
    summary = TrafficWindow().summary(10.0)
    assert summary.requests_per_s == 0.0
    assert (summary.ttft_p50_s, summary.on_time_share, summary.hit_share, summary.late) == (None, None, None, 0)


def test_results_older_than_the_window_are_removed() -> None:
    window = TrafficWindow(window_s=10.0)
    window.add(ended_record(0.0))
    window.add(ended_record(9.0))
    assert window.summary(10.5).requests_per_s == pytest.approx(1 / 10)
    assert len(window) == 1


def test_percentiles_are_observed_values() -> None:
    window = TrafficWindow()
    for number in range(1, 101):
        window.add(ended_record(0.0, number / 100))
    summary = window.summary(1.0)
    assert (summary.ttft_p50_s, summary.ttft_p90_s, summary.ttft_p99_s) == (0.50, 0.90, 0.99)


def test_late_failed_and_rejected_requests_are_apart_and_cancelled_ones_are_ignored() -> None:
    window = TrafficWindow()
    window.add(ended_record(0.0))
    window.add(ended_record(0.0, None, on_time=False, outcome=FAILED, engine_id=""))
    window.add(ended_record(0.0, None, on_time=False, outcome=CANCELLED))
    window.add(ended_record(0.0, None, on_time=False, outcome=REJECTED, engine_id=""))
    window.add(ended_record(0.0, on_time=False))
    summary = window.summary(1.0)
    assert summary.on_time_share == 0.25
    assert (summary.late, summary.failed, summary.rejected, summary.judged) == (1, 1, 1, 4)


def test_the_hit_share_covers_requests_whose_engine_reports_cached_tokens() -> None:
    window = TrafficWindow()
    window.add(ended_record(0.0, prompt=100, cached=80))
    window.add(ended_record(0.0, prompt=900, cached=None))
    assert window.summary(1.0).hit_share == 0.8


def test_the_approximate_share_covers_requests_with_media() -> None:
    window = TrafficWindow(window_s=10.0)
    assert window.summary(0.0).approximate_share is None
    for at_s, source in ((0.0, "media"), (5.0, "tokenized"), (6.0, "media"), (7.0, "bytes")):
        window.add(ended_record(at_s, key_source=source))
    assert window.summary(9.0).approximate_share == 0.5
    assert window.summary(14.0).approximate_share == pytest.approx(1 / 3)
    window.check()


def test_totals_per_engine_outlive_the_window() -> None:
    window = TrafficWindow(window_s=1.0)
    window.add(ended_record(0.0))
    window.add(ended_record(5.0))
    window.add(ended_record(5.0, outcome=FAILED))
    window.summary(100.0)
    assert window.totals("a") == (200, 80)
    assert window.totals("b") == (0, 0)
    window.forget("a")
    assert window.totals("a") == (0, 0)


def test_over_the_limit_the_newest_results_are_kept_and_the_rate_stays_accurate() -> None:
    window = TrafficWindow(window_s=100.0, max_results=10)
    for number in range(1000):
        window.add(ended_record(number / 10))
    assert len(window) == 10
    assert window.summary(100.0).requests_per_s == pytest.approx(10.0, rel=0.05)


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 100), st.booleans()), max_size=60), st.floats(0, 60))
def test_shares_and_percentiles_stay_in_range(rows: list[tuple[float, float, bool]], now: float) -> None:
    window = TrafficWindow(window_s=20.0)
    for at_s, ttft_s, on_time in sorted(rows):
        window.add(ended_record(at_s, ttft_s, on_time=on_time))
    summary = window.summary(max(now, max((row[0] for row in rows), default=0.0)))
    if summary.on_time_share is not None:
        assert 0.0 <= summary.on_time_share <= 1.0
    if summary.ttft_p50_s is not None and summary.ttft_p90_s is not None and summary.ttft_p99_s is not None:
        assert summary.ttft_p50_s <= summary.ttft_p90_s <= summary.ttft_p99_s


_results = st.builds(
    ended_record,
    st.floats(0, 50),
    st.none() | st.floats(0, 100),
    prompt=st.integers(1, 9000),
    cached=st.none() | st.integers(0, 9000),
    on_time=st.booleans(),
    outcome=st.sampled_from((COMPLETED, FAILED, CANCELLED)),
)


@given(st.lists(_results, max_size=60), st.integers(1, 40))
def test_sums_match_the_remaining_results(rows: list[DecisionRecord], limit: int) -> None:
    window = TrafficWindow(window_s=20.0, max_results=limit)
    for row in sorted(rows, key=lambda item: item.finished_s or 0.0):
        window.add(row)
        window.check()
        if row.decision.prompt_tokens % 3 == 0:
            window.summary((row.finished_s or 0.0) + 5.0)
            window.check()
    assert len(window) <= limit


def test_predicted_and_reported_cached_tokens_are_summed_side_by_side() -> None:
    window = TrafficWindow()
    window.add(ended_record(1.0, 0.1, cached=25, predicted=40))
    window.add(ended_record(1.1, 0.1, cached=None, predicted=20))
    window.add(ended_record(1.2, None, cached=None, predicted=90, outcome=FAILED))
    assert (window.totals("a"), window.predicted("a")) == ((200, 25), 60)
    window.forget("a")
    assert window.predicted("a") == 0


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
