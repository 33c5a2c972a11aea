"""Figures of a decision history: retries hide no loss, and the p99 during outages is separate."""

from __future__ import annotations

import pytest

from bench.live.decision_history import AskedDecision, figures, p99_s


def decision(number: int, asked_s: float, took_s: float, **more: int) -> AskedDecision:
    known = {"attempts": 1, "status": 200, "report_status": 200, **more}
    return AskedDecision(number, asked_s, answered_s=asked_s + took_s, **known)  # type: ignore[arg-type]


def test_p99_is_a_measured_time() -> None:
    assert p99_s([]) == 0.0
    assert p99_s([decision(n, 0.0, 0.01 * n) for n in range(1, 101)]) == pytest.approx(0.99)


def test_retried_rejected_and_lost_decisions_are_counted_separately() -> None:
    history = [
        decision(0, 1.0, 0.1),
        decision(1, 2.0, 0.1, attempts=2),
        decision(2, 3.0, 0.1, status=503),
        decision(3, 4.0, 20.0, status=0, attempts=9),
        decision(4, 5.0, 0.1, report_status=404),
    ]
    counts = figures(history, [])
    assert counts["decisions"] == 5
    assert counts["decisions_asked_again"] == 2
    assert counts["decisions_lost"] == 1
    assert counts["decisions_rejected"] == 1
    assert counts["reports_not_taken"] == 1


def test_decisions_during_a_gateway_outage_have_a_separate_p99() -> None:
    history = [decision(0, 1.0, 0.1), decision(1, 9.95, 0.3), decision(2, 11.0, 0.2), decision(3, 12.5, 0.1)]
    counts = figures(history, [(10.0, 12.0)])
    assert counts["decision_p99_s"] == pytest.approx(0.1)
    assert counts["decision_p99_gateway_away_s"] == pytest.approx(0.3)
    assert counts["decision_p99_ratio"] == pytest.approx(3.0)
