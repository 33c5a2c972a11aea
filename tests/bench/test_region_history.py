"""The checker of region histories reports each violation.

Figures of a decision history: retries hide no loss, and the p99 during outages is separate.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bench.live.decision_history import AskedDecision, figures, p99_s
from bench.live.region_history import problems


def event(at_s: float, gateway: str, name: str, **fields: Any) -> dict[str, Any]:
    at = datetime.fromtimestamp(1000 + at_s, UTC).isoformat(timespec="milliseconds")
    return {"at": at, "gateway": gateway, "event": name, "decision_id": "d", **fields}


def test_one_engine_after_the_other_is_accepted() -> None:
    history = [
        event(0, "us", "dispatched", engine_id="us-1"),
        event(1, "us", "released"),
        event(2, "eu", "dispatched", engine_id="eu-1"),
    ]
    assert problems(history, {}) == []


def test_two_engines_at_once_are_reported() -> None:
    history = [
        event(0, "us", "dispatched", engine_id="us-1"),
        event(1, "eu", "dispatched", engine_id="eu-1"),
    ]
    assert len(problems(history, {})) == 1


def test_gateway_crash_ends_its_work() -> None:
    history = [
        event(0, "us", "dispatched", engine_id="us-1"),
        event(2, "eu", "dispatched", engine_id="eu-1"),
    ]
    assert problems(history, {"us": [1001.0]}) == []
    assert len(problems(history, {"us": [1003.0], "eu": [1001.0]})) == 1


def test_second_hop_second_owner_and_stale_choice_are_reported() -> None:
    forwarded = {"destination": "asia", "heartbeat_age_s": 0.1}
    assert problems([event(0, "us", "forwarded", **forwarded), event(1, "us", "forwarded", **forwarded)], {}) == []
    assert len(problems([event(0, "us", "forwarded", **forwarded), event(1, "eu", "forwarded", **forwarded)], {})) == 1
    claims = [
        event(at, "us", "region_epoch", region_name="eu", number=2, holder=tag) for at, tag in ((0, "a"), (1, "b"))
    ]
    assert len(problems(claims, {})) == 1
    assert len(problems([event(0, "us", "forwarded", destination="asia", heartbeat_age_s=2.5)], {})) == 1


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
