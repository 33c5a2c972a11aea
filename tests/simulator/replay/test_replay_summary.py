from __future__ import annotations

import msgspec
import pytest

from simulator.replay.replay_summary import ReplayOutcome, ReplaySummary, SummaryCounter, render_summary


def _counter() -> SummaryCounter:
    counter = SummaryCounter()
    for number in range(1, 101):
        counter.add(
            ReplayOutcome(status="ok", ttft_s=number / 100, prompt_tokens=100, cached_tokens=40, output_tokens=5)
        )
    counter.add(ReplayOutcome(status="rejected", error="HTTP 429"))
    counter.add(ReplayOutcome(status="failed", error="cannot connect"))
    return counter


def test_outcomes_are_summed() -> None:
    summary = _counter().summary(10.0)
    assert (summary.requests, summary.ok, summary.rejected, summary.failed) == (102, 100, 1, 1)
    assert (summary.ttft_p50_s, summary.ttft_p90_s, summary.ttft_p99_s) == (0.5, 0.9, 0.99)
    assert summary.cached_share == pytest.approx(0.4)
    assert summary.output_tokens_per_s == pytest.approx(50.0)
    assert summary.errors == {"HTTP 429": 1, "cannot connect": 1}


def test_responses_without_reported_cached_tokens_do_not_dilute_the_share() -> None:
    counter = _counter()
    counter.add(ReplayOutcome(status="ok", ttft_s=1.0, prompt_tokens=10_000))
    summary = counter.summary(10.0)
    assert summary.cached_share == pytest.approx(0.4)
    assert summary.prompt_tokens == 20_000


def test_unmeasured_figures_are_none_and_not_zero() -> None:
    summary = SummaryCounter().summary(0.0)
    assert (summary.ttft_p50_s, summary.cached_share, summary.output_tokens_per_s) == (None, None, 0.0)
    assert "not reported" in render_summary(summary)


def test_the_lines_name_every_error() -> None:
    text = render_summary(_counter().summary(10.0))
    assert "1 × cannot connect" in text
    assert "p90 0.900 s" in text


def test_a_summary_round_trips_through_json() -> None:
    summary = _counter().summary(10.0)
    assert msgspec.json.decode(msgspec.json.encode(summary), type=ReplaySummary) == summary
