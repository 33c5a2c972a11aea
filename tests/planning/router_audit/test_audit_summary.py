"""Sums, worst decisions, and ranges of an audit."""

from __future__ import annotations

import pytest

from planning.router_audit.audit_summary import (
    BUSY,
    CACHE,
    WORST,
    AuditedDecision,
    FigureRange,
    figure_range,
    sampling_error,
    summary_of,
)


def decision(number: int, regret_s: float, **changes: object) -> AuditedDecision:
    values = {
        "request_id": f"r{number:02}", "at_s": float(number), "prompt_tokens": 100, "engine": "a", "hit_tokens": 50,
        "ttft_s": 2.0, "regret_s": regret_s, "parts": {CACHE: regret_s}, "better_engine": "b", "better_ttft_s": 1.0,
        "better_hit_tokens": 0, "default_engine": "b", **changes,
    }  # fmt: skip
    return AuditedDecision(**values)


def test_the_worst_decisions_come_first_and_ties_in_order_of_arrival() -> None:
    decisions = [decision(number, 1.0 + (number == 7)) for number in range(WORST + 5)]
    worst = summary_of(decisions).worst
    assert [item.request_id for item in worst] == ["r07", *(f"r{number:02}" for number in (0, 1, 2, 3, 4, 5, 6, 8, 9))]


def test_causes_engines_and_slices_sum_up_to_the_regret() -> None:
    decisions = [
        decision(0, 1.0),
        decision(1, 0.5, parts={CACHE: 0.2, BUSY: 0.3}, engine="b"),
        decision(2, 0.0, parts={}, default_engine="a"),
    ]
    summary = summary_of(decisions)
    assert (summary.decisions, summary.regretted, summary.agreed) == (3, 2, 2)
    assert summary.regret_s == sum(summary.per_slice) == sum(item.regret_s for item in summary.engines) == 1.5
    assert sum(summary.causes.values()) == pytest.approx(1.5)
    assert [(item.engine, item.requests) for item in summary.engines] == [("a", 2), ("b", 1)]


def test_a_range_starts_from_the_best_known_value_and_widens_outward() -> None:
    assert figure_range([2.0, 1.0, 4.0]) == FigureRange(2.0, 1.0, 4.0)
    assert FigureRange(2.0, 1.0, 4.0).widened(1.5) == FigureRange(2.0, -0.5, 5.5)


def test_the_sampling_error_counts_neighbors_as_one_observation() -> None:
    alternating, in_runs = [0.0, 2.0] * 200, ([0.0] * 40 + [2.0] * 40) * 5
    assert sampling_error(alternating) == 0.0
    assert sampling_error(in_runs) == pytest.approx(1.729 * (20 / 19) ** 0.5 / 20**0.5)
    assert sampling_error([1.0] * 19) == 0.0
