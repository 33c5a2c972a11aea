"""Endpoints of the engine drawer: card, decision, and actions; permissions and rejections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.request_log.recent_decisions import recent_decisions
from gateway.bus.bus import Bus
from routing.values import reasons
from tests.controlplane.conftest import bus
from tests.web.fake_fleet import FakeFleet
from tests.web.request_log.fake_decisions import FakeGateway, fake_decisions
from tests.web.role_clients import client_of, make_person, make_pool
from web.live import engine_card

__all__ = ["bus"]

pytestmark = pytest.mark.django_db
ENGINE = "engine-e-01"
JSON = {"HTTP_ACCEPT": "application/json"}


@pytest.fixture
def engine(bus: Bus) -> Engine:
    url = "http://127.0.0.1:9000"
    return Engine.objects.create(engine_id=ENGINE, name="e-01", pool=make_pool(), url=url, connect_url=url)


@pytest.fixture(autouse=True)
def asker(bus: Bus) -> Iterator[None]:
    """Clear the cached decision query, so that it uses the bus of this test."""
    recent_decisions.cache_clear()
    yield
    recent_decisions.cache_clear()


@pytest.fixture
def gateway(bus: Bus) -> FakeGateway:
    return FakeGateway(bus, fake_decisions(FakeFleet(4, 1).sample_at(0, 0)))


def ask(client: Client, **form: str) -> tuple[int, dict[str, str]]:
    answer = client.post(f"/fleet/engines/{ENGINE}/state", form, **JSON)
    return answer.status_code, json.loads(answer.content) if answer.status_code != 404 else {}


def operator(engine: Engine) -> Client:
    return client_of(make_person("pool_operator", engine.pool))


def test_card_lists_the_last_decisions_newest_first(
    engine: Engine, gateway: FakeGateway, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = operator(engine)
    with django_assert_num_queries(4):  # session, account, engine with its pool, grants
        card = client.get(f"/fleet/engines/{ENGINE}").json()
    assert (card["name"], card["desired_state"], card["may_operate"], card["revision"]) == ("e-01", "ready", True, 1)
    assert len(card["decisions"]) == 8
    times = [line["at"] for line in card["decisions"]]
    assert times == sorted(times, reverse=True)
    assert card["decisions"][0]["ttft_s"] is None
    assert {"Least cost", "Longest match", "Equal match"} >= {line["reason"] for line in card["decisions"]}
    waited = [line for line in card["decisions"] if line["queue_reason"]]
    assert {(line["queue_reason"], line["overtook"]) for line in waited} == {("shortest on time", 2)}
    assert len(waited) < len(card["decisions"])


def test_a_failed_request_says_why_and_its_fast_first_token_is_not_late(engine: Engine, gateway: FakeGateway) -> None:
    failed = {"outcome": "failed", "error": "broken_stream", "first_token_after_s": 0.1}
    gateway.decisions = [msgspec.structs.replace(item, **failed) for item in gateway.decisions]
    lines = card(operator(engine))["decisions"]
    assert {(line["reason"], line["on_time"]) for line in lines} == {("Failed, connection lost while streaming", True)}


def test_an_operator_quarantines_and_releases_with_a_reason_and_a_viewer_does_not(engine: Engine) -> None:
    client = operator(engine)
    assert card(client)["health_verb"] == "quarantine"
    status, said = ask(client, state="quarantine", why="slow disk")
    assert (status, said["message"]) == (200, "e-01 is quarantined: new requests go to other engines.")
    event = AuditEvent.objects.get(verb="engine.quarantine")
    assert (event.object_id, event.why) == (ENGINE, "by pool_operator: slow disk")
    shown = card(client)
    assert (shown["health_verb"], shown["health"]["state"]) == ("trust", "quarantined")
    viewer = client_of(make_person("pool_viewer", engine.pool))
    assert card(viewer)["health_verb"] == ""
    assert ask(viewer, state="trust")[0] == 403
    assert ask(client, state="trust", why="replaced")[0] == 200
    assert card(client)["health"]["state"] == "healthy"
    assert ask(client, state="quarantined")[0] == 400


@pytest.mark.parametrize(
    ("desired", "mode", "verb"),
    [
        (DesiredState.READY, PoolMode.ROUTE, "quarantine"),
        (DesiredState.DRAINING, PoolMode.ROUTE, ""),
        (DesiredState.MAINTENANCE, PoolMode.ROUTE, ""),
        (DesiredState.READY, PoolMode.OBSERVE, ""),
    ],
)
def test_quarantine_is_offered_only_where_it_has_an_effect(
    engine: Engine, desired: DesiredState, mode: PoolMode, verb: str
) -> None:
    Engine.objects.update(desired_state=desired)
    Pool.objects.update(mode=mode)
    assert card(operator(engine))["health_verb"] == verb


def card(client: Client) -> dict[str, Any]:
    return json.loads(client.get(f"/fleet/engines/{ENGINE}").content)


def test_every_reason_of_the_core_has_a_unique_title() -> None:
    codes = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str) and value}
    titled = set(engine_card.REASONS) | set(engine_card.QUEUE_REASONS) | set(engine_card.DECODE_REASONS)
    assert codes - set(reasons.REJECTIONS) <= titled
    assert len(set(engine_card.REASONS.values())) == len(engine_card.REASONS)


def test_card_reports_that_no_gateway_responds(engine: Engine) -> None:
    assert operator(engine).get(f"/fleet/engines/{ENGINE}").json()["decisions"] is None


@pytest.mark.parametrize(("role", "sees", "steers"), [
    ("nobody", False, False), ("viewer", True, False), ("pool_viewer", True, False), ("pool_operator", True, True),
    ("operator", True, True), ("admin", True, True), ("superuser", True, True),
])  # fmt: skip
def test_each_role_sees_and_controls_only_what_it_may(
    engine: Engine, gateway: FakeGateway, role: str, sees: bool, steers: bool
) -> None:
    client = client_of(make_person(role, engine.pool))
    card = client.get(f"/fleet/engines/{ENGINE}")
    assert card.status_code == (200 if sees else 403)
    if sees:
        assert card.json()["may_operate"] is steers
    answer = client.post(f"/fleet/engines/{ENGINE}/state", {"state": "draining"}, **JSON)
    assert answer.status_code == (200 if steers else 403)
    assert Engine.objects.get().desired_state == ("draining" if steers else "ready")


def test_operator_of_another_pool_can_neither_see_nor_control_the_engine(engine: Engine, gateway: FakeGateway) -> None:
    client = client_of(make_person("pool_operator", make_pool("other")))
    assert client.get(f"/fleet/engines/{ENGINE}").status_code == 404
    assert client.post(f"/fleet/engines/{ENGINE}/state", {"state": "draining"}, **JSON).status_code == 404


def test_action_changes_the_engine_and_is_audited_with_its_reason(engine: Engine, gateway: FakeGateway) -> None:
    client = operator(engine)
    status, answer = ask(client, state="draining", why=" kernel update ", revision="1")
    assert (status, "e-01 is draining" in answer["message"]) == (200, True)
    event = AuditEvent.objects.get()
    assert (event.verb, event.object_id, event.why, event.via) == ("engine.drain", ENGINE, "kernel update", "console")
    assert ask(client, state="ready", revision="2")[0] == 200
    assert Engine.objects.get().desired_state == DesiredState.READY


def test_stale_revision_is_rejected_and_nothing_changes(engine: Engine, gateway: FakeGateway) -> None:
    client = operator(engine)
    ask(client, state="maintenance", revision="1")
    status, answer = ask(client, state="draining", revision="1")
    assert status == 412
    assert "changed e-01 to maintenance" in answer["error"]
    assert Engine.objects.get().desired_state == DesiredState.MAINTENANCE


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({}, "state must be one of"),
        ({"state": "gone"}, "state must be one of"),
        ({"state": "ready", "revision": "one"}, "whole number"),
        ({"state": "ready", "revision": "²"}, "whole number"),
        ({"state": "ready", "revision": "9" * 40}, "whole number"),
        ({"state": "ready", "why": "x" * 201}, "the maximum is 200"),
    ],
)
def test_invalid_form_is_rejected_with_a_remedy(
    engine: Engine, gateway: FakeGateway, form: dict[str, str], words: str
) -> None:
    status, answer = ask(operator(engine), **form)
    assert status == 400
    assert words in answer["error"]
    assert not AuditEvent.objects.exists()


def test_form_sent_without_scripts_returns_to_the_drawer(engine: Engine, gateway: FakeGateway) -> None:
    answer = operator(engine).post(f"/fleet/engines/{ENGINE}/state", {"state": "draining"})
    assert (answer.status_code, answer["Location"]) == (302, f"/?engine={ENGINE}")


def test_decision_shows_its_candidates_in_words_and_no_prompt(engine: Engine, gateway: FakeGateway) -> None:
    (newest, *_) = gateway.of_engine(ENGINE)
    client = client_of(make_person("viewer"))
    answer = client.get(f"/fleet/decisions/{newest.decision.decision_id}").json()
    assert answer["engine_name"] == "e-01"
    assert answer["decision"]["candidates"][0]["engine_id"] == ENGINE
    assert " " in answer["reason_words"]
    assert "prompt" not in {name for name in answer if name != "prompt_tokens"}
    assert client.get("/fleet/decisions/none").status_code == 404


def test_decisions_of_invisible_pools_are_not_found(engine: Engine, gateway: FakeGateway) -> None:
    (newest, *_) = gateway.of_engine(ENGINE)
    path = f"/fleet/decisions/{newest.decision.decision_id}"
    assert client_of(make_person("pool_operator", engine.pool)).get(path).status_code == 404
    assert client_of(make_person("pool_viewer", make_pool("pool-0"))).get(path).status_code == 200
    assert client_of(make_person("nobody")).get(path).status_code == 403
