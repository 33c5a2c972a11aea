"""The checker of region histories reports each violation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

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
