"""Actuator settings are typed and complete, hold no secret, and report their errors."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.automation.actuators.process import ProcessActuator
from controlplane.automation.actuators.registry import ACTUATORS, actuator_of
from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.actuator_settings import SETTINGS, ProcessSettings, checked_settings
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import ActuatorKind, Pool
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError

ACTOR = program("tests")


def test_every_kind_has_settings_and_an_actuator() -> None:
    assert set(SETTINGS) == set(ACTUATORS) == set(ActuatorKind.values)


def test_settings_are_stored_with_all_defaults() -> None:
    assert checked_settings("process", {}) == {"max_engines": 16}
    hook = checked_settings("webhook", {"url": "https://fleet.example/hook"})
    assert hook == {
        "url": "https://fleet.example/hook",
        "secret_variable": "HEADWAY_WEBHOOK_SECRET",
        "timeout_s": 5.0,
    }


@pytest.mark.parametrize(
    ("kind", "document", "path"),
    [
        ("teleport", {}, "actuator"),
        ("manual", {"x": 1}, "actuator_settings"),
        ("process", {"max_engines": 0}, "actuator_settings.max_engines"),
        ("webhook", {}, "actuator_settings"),
        ("webhook", {"url": "ftp://x"}, "actuator_settings.url"),
        ("webhook", {"url": "https://user:pass@fleet.example"}, "actuator_settings.url"),
        ("webhook", {"url": "https://a.example", "secret_variable": "SECRET_KEY"}, "actuator_settings.secret_variable"),
        ("webhook", {"url": "https://a.example", "secret": "hunter2"}, "actuator_settings"),
        ("kubernetes", {"namespace": "a b", "stateful_sets": {"mixed": "x"}}, "actuator_settings.namespace"),
        ("kubernetes", {"namespace": "a", "stateful_sets": {"both": "x"}}, "actuator_settings.stateful_sets"),
        (
            "kubernetes",
            {"namespace": "a", "stateful_sets": {"mixed": "x"}, "url": "http://{pod.__class__}:80"},
            "actuator_settings.url",
        ),
        (
            "kubernetes",
            {"namespace": "a", "stateful_sets": {"mixed": "x"}, "url": "http://{host}:80"},
            "actuator_settings.url",
        ),
    ],
)
def test_invalid_settings_are_rejected_with_their_path(kind: str, document: Any, path: str) -> None:
    with pytest.raises(InvalidFieldsError) as caught:
        checked_settings(kind, document)
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.django_db
def test_other_actuator_kind_starts_with_its_own_defaults(pool: Pool) -> None:
    change_pool(pool, {"actuator": "process", "actuator_settings": {"max_engines": 3}}, actor=ACTOR)
    change_pool(pool, {"actuator_settings": {}}, actor=ACTOR)
    assert pool.actuator_settings == {"max_engines": 16}
    change_pool(pool, {"actuator": "manual"}, actor=ACTOR)
    assert (pool.actuator, pool.actuator_settings) == ("manual", {})
    with pytest.raises(InvalidFieldsError):
        change_pool(pool, {"actuator": "webhook"}, actor=ACTOR)
    assert type(actuator_of(pool)).__name__ == "ManualActuator"


@pytest.mark.django_db
def test_new_process_gets_a_free_name_and_free_ports(pool: Pool) -> None:
    for name in ("e-01", "e-03"):
        port = 21_500 + int(name[-1])
        Engine.objects.create(
            pool=pool, name=name, url=f"http://127.0.0.1:{port}", connect_url=f"http://127.0.0.1:{port}"
        )
    answer = ProcessActuator(ProcessSettings()).start(EngineAction(key="k", pool=pool, role="mixed"))
    assert answer.engine is not None
    assert (answer.engine.name, answer.engine.supervised) == ("e-02", True)
    addresses = (answer.engine.url, answer.engine.kv_events_endpoint, answer.engine.kv_replay_endpoint)
    assert len({address.rsplit(":", 1)[1] for address in addresses}) == 3


@pytest.mark.django_db
def test_new_process_uses_the_kv_node_with_the_fewest_engines(pool: Pool) -> None:
    def started() -> str:
        answer = ProcessActuator(ProcessSettings()).start(EngineAction(key="k", pool=pool, role="mixed"))
        assert answer.engine is not None
        return answer.engine.kv_node

    assert started() == ""
    for number, node in enumerate(("kv-2", "kv-1", "kv-2", "")):
        url = f"http://10.0.0.{number}:80"
        Engine.objects.create(
            pool=pool, name=f"n{number}", engine_id=f"n{number}", url=url, connect_url=url, kv_node=node
        )
    assert started() == "kv-1"
