"""The sliding window over finished requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.traffic_window import CANCELLED, COMPLETED, FAILED, TrafficWindow
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


def test_failed_requests_count_as_late_and_cancelled_ones_are_ignored() -> None:
    window = TrafficWindow()
    window.add(ended_record(0.0))
    window.add(ended_record(0.0, None, on_time=False, outcome=FAILED, engine_id=""))
    window.add(ended_record(0.0, None, on_time=False, outcome=CANCELLED))
    summary = window.summary(1.0)
    assert summary.on_time_share == 0.5
    assert summary.late == 1


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
