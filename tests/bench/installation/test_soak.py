"""The verdict of the soak: faults in a history that it must report, and events that it must accept."""

from __future__ import annotations

import pytest

from bench.installation.soak_run.engine_service import EngineService
from bench.installation.soak_run.kills import Kill
from bench.installation.soak_run.policy_versions import Published, wrong_versions
from bench.installation.soak_run.verdict import DOUBLES, wrong_effects, wrong_requests
from bench.live.client_history import Asked, Decided


def asked(number: int = 1, **fields: object) -> Asked:
    known = {"number": number, "sent_s": 10.0, "streams": True, "first_s": 10.5, "ended_s": 12.0, "fate": "whole"}
    return Asked(**{**known, **fields})  # type: ignore[arg-type]


class Service:
    """The counts of an EngineService without its server."""

    def __init__(self, started: tuple[str, ...] = (), stopped: dict[str, str] | None = None) -> None:
        self.started = {key: {"name": key} for key in started}
        self.stopped = stopped or {}

    alive = EngineService.alive


def effects(
    service: Service, orders: list[tuple[str, str, str, str]], engines: list[str], target: int = 1
) -> list[str]:
    rows = {"orders": orders, "engines": [(name,) for name in engines]}
    return wrong_effects(service, target, rows)  # type: ignore[arg-type]


def test_history_without_loss_is_accepted() -> None:
    assert wrong_requests([asked(1), asked(2, fate="rejected", first_s=None)], []) == []


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"fate": "lost", "first_s": None}, "lost"),
        ({"ended_s": None}, "never ended"),
        ({"fate": "broken_off"}, "broke off"),
    ],
)
def test_lost_or_truncated_request_without_a_cause_is_reported(fields: dict[str, object], word: str) -> None:
    (wrong,) = wrong_requests([asked(**fields)], [Kill("worker-0", 11.0)])  # type: ignore[arg-type]
    assert word in wrong


def test_response_truncated_by_a_kill_of_its_gateway_or_engine_is_accepted() -> None:
    broken = asked(fate="broken_off")
    assert wrong_requests([broken], [Kill("engine-2", 11.0)]) == []
    assert len(wrong_requests([broken], [Kill("engine-2", 13.0)])) == 1


def test_action_that_takes_effect_once_is_accepted() -> None:
    service = Service(("a", "b"), {"c": "b"})
    orders = [("a", "start", "done", ""), ("b", "start", "done", ""), ("c", "stop", "done", "")]
    assert effects(service, orders, ["a"]) == []


def test_effect_without_action_and_action_without_effect_are_reported() -> None:
    assert any("belongs to no order" in effect for effect in effects(Service(("a",)), [], ["a"]))
    assert any("had no effect" in effect for effect in effects(Service(), [("a", "start", "done", "")], []))
    assert any(
        "was taken back" in effect for effect in effects(Service(("a",)), [("a", "start", "cancelled", "")], ["a"])
    )
    assert any(
        "is sent at the end" in effect for effect in effects(Service(("a",)), [("a", "start", "sent", "")], ["a"])
    )


def test_unregistered_running_engine_is_reported() -> None:
    wrong = effects(Service(("a", "b")), [("a", "start", "done", ""), ("b", "start", "done", "")], ["a"])
    assert wrong == ["['b'] are registered or run, not both"]


def test_effect_that_happens_twice_is_reported() -> None:
    name = next(iter(DOUBLES))
    rows = {name: [("e-1",)], "orders": [("a", "start", "done", "")], "engines": [("a",)]}
    (wrong,) = wrong_effects(Service(("a",)), 1, rows)  # type: ignore[arg-type]
    assert name in wrong


PUBLISHED = [Published(1, 0.0), Published(2, 10.0)]


def test_versions_applied_in_order_are_accepted() -> None:
    decided = [Decided("a", 9.0, 1), Decided("b", 10.5, 2), Decided("a", 10.6, 1), Decided("a", 10.7, 2)]
    assert wrong_versions(decided, PUBLISHED) == []


def test_decision_before_the_publication_of_its_version_is_reported() -> None:
    (early,) = wrong_versions([Decided("a", 9.9, 2)], PUBLISHED)
    assert "before it was published" in early
    (unknown,) = wrong_versions([Decided("a", 99.0, 3)], PUBLISHED)
    assert "before it was published" in unknown


def test_gateway_that_reverts_to_an_older_version_is_reported() -> None:
    (back,) = wrong_versions([Decided("a", 11.0, 2), Decided("a", 12.0, 1), Decided("b", 12.0, 1)], PUBLISHED)
    assert "went back from version 2 to 1" in back
