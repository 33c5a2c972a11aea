"""Engines over REST: registration, state changes, deletion, and batches."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from controlplane.fleet.models.engine import Engine
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import TOPIC, EngineSample, FleetSample
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
NEW = {"pool": "pool-a", "name": "e-new", "url": "http://10.0.9.9:8000/"}


def report(
    bus: Bus, engine_id: str, *, running: int = 0, bound: int = 0, state: str = "draining", age_s: float = 0
) -> None:
    """Publish a gateway's report on one engine."""
    engine = EngineSample(
        engine_id=engine_id,
        name=engine_id,
        pool_id="pool-a",
        incarnation=1,
        state=state,
        reason="",
        since=0.0,
        in_flight_tokens=0,
        in_flight_s=0.0,
        running=running,
        bound=bound,
        kv_usage=None,
        prompt_tokens_total=0,
        cached_tokens_total=0,
        index_trust="exact",
        report_age_s=None,
    )
    sample = FleetSample(seq=1, at=time.time() - age_s, window_s=30.0, snapshot_version=1, engines=(engine,), pools=())
    bus.publish(TOPIC, msgspec.msgpack.encode(sample))


def test_registered_engine_is_published(api: Api) -> None:
    answer = api.post("engines", NEW)
    assert answer.status_code == 201
    made = answer.json()
    assert (made["url"], made["connect_url"], made["desired_state"]) == (
        "http://10.0.9.9:8000",
        "http://10.0.9.9:8000",
        "ready",
    )
    assert made["engine_id"] in {entry.engine_id for entry in build_snapshot(at=0.0).engines}


def test_role_is_registered_changed_and_published(api: Api) -> None:
    made = api.post("engines", {**NEW, "role": "prefill"}).json()
    assert made["role"] == "prefill"
    changed = api.change("PATCH", f"engines/{made['engine_id']}", {"role": "decode"})
    assert (changed.status_code, changed.json()["role"]) == (200, "decode")
    roles = {entry.engine_id: entry.role for entry in build_snapshot(at=0.0).engines}
    assert roles[made["engine_id"]] == "decode"
    assert set(roles.values()) == {"mixed", "decode"}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"role": "both"}, "role"),
        ({"url": "http://169.254.169.254"}, "url"),
        ({"kv_events_endpoint": "http://10.0.0.1:1"}, "kv_events_endpoint"),
        ({"name": "e-a"}, "name"),
        ({"name": "has space"}, "name"),
        ({"url": "http://10.0.1.1:8000"}, "url"),
        ({"pool": "pool-x"}, "pool"),
        ({"speed": 0}, "speed"),
        ({"speed": True}, "speed"),
    ],
)
def test_invalid_value_is_reported_by_its_field(api: Api, change: dict[str, Any], path: str) -> None:
    answer = api.post("engines", {**NEW, **change})
    assert answer.status_code == 400
    assert [error["path"] for error in answer.json()["errors"]] == [path]
    assert not Engine.objects.filter(name="e-new").exists()


def test_all_invalid_values_are_reported_together(api: Api) -> None:
    answer = api.post("engines", {"name": 5, "url": None, "speed": "fast", "colour": "red"})
    assert {error["path"] for error in answer.json()["errors"]} == {"name", "url", "speed", "colour", "pool"}


def test_engine_drains_and_returns(api: Api) -> None:
    assert api.post("engines/e-a/state", {"state": "draining", "why": "new driver"}).json()["revision"] == 2
    (entry,) = [entry for entry in build_snapshot(at=0.0).engines if entry.engine_id == "e-a"]
    assert entry.desired_state == "draining"
    assert api.post("engines/e-a/state", {"state": "ready"}).json()["desired_state"] == "ready"
    verbs = [event["verb"] for event in api.get("audit?object_id=e-a").json()["results"]]
    assert verbs == ["engine.ready", "engine.drain", "engine.register"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (None, 409),
        ({"running": 1}, 409),
        ({"bound": 1}, 409),
        ({"age_s": 60.0}, 409),
        ({}, 204),
        ({"state": "lost"}, 204),
    ],
)
def test_only_an_empty_engine_is_deleted(api: Api, bus: Bus, said: dict[str, Any] | None, status: int) -> None:
    api.post("engines/e-a/state", {"state": "draining"})
    if said is not None:
        report(bus, "e-a", **said)
    assert api.change("DELETE", "engines/e-a").status_code == status
    assert Engine.objects.filter(engine_id="e-a").exists() == (status == 409)


def test_engine_that_accepts_requests_is_not_deleted(api: Api, bus: Bus) -> None:
    report(bus, "e-a", state="serving")
    answer = api.change("DELETE", "engines/e-a")
    assert answer.status_code == 409
    assert "drain it first" in answer.json()["detail"]


OPERATIONS = [
    {"op": "register", "pool": "pool-a", "name": "n-1", "url": "http://10.0.9.1:8000"},
    {"op": "register", "pool": "pool-b", "name": "n-2", "url": "http://10.0.9.2:8000", "speed": 2.0},
    {"op": "state", "engine_id": "e-a", "state": "draining"},
]


def test_preview_reports_the_effects_and_changes_nothing(api: Api) -> None:
    version, events = build_snapshot(at=0.0).version, AuditEvent.objects.count()
    answer = api.post("engines/bulk", {"operations": OPERATIONS, "dry_run": True})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [(result["op"], result["after"]["name"]) for result in results] == [
        ("register", "n-1"),
        ("register", "n-2"),
        ("state", "e-a"),
    ]
    assert (results[2]["before"]["desired_state"], results[2]["after"]["desired_state"]) == ("ready", "draining")
    assert (build_snapshot(at=0.0).version, AuditEvent.objects.count()) == (version, events)
    assert Engine.objects.count() == 2


def test_batch_of_operations_is_atomic(api: Api) -> None:
    answer = api.post("engines/bulk", {"operations": OPERATIONS, "why": "new rack"}, X_Request_Id="bulk-1")
    assert answer.json()["dry_run"] is False
    assert set(Engine.objects.values_list("name", "desired_state")) == {
        ("e-a", "draining"),
        ("e-b", "ready"),
        ("n-1", "ready"),
        ("n-2", "ready"),
    }
    events = api.get("audit?request_id=bulk-1").json()["results"]
    assert len(events) == 3
    assert {event["why"] for event in events} == {"new rack"}


def test_invalid_operation_rejects_the_batch_and_every_problem_is_reported(api: Api) -> None:
    wrong = [
        {"op": "register", "pool": "nowhere", "name": "n-3", "url": "http://10.0.9.3:8000"},
        {"op": "register", "pool": "pool-a", "name": "n-4", "url": "http://169.254.169.254"},
        {"op": "register", "pool": "pool-a", "name": "n-5"},
        {"op": "state", "engine_id": "e-z", "state": "ready"},
        {"op": "delete", "engine_id": "e-b"},
    ]
    answer = api.post("engines/bulk", {"operations": [*OPERATIONS, *wrong]})
    assert answer.status_code == 400
    assert [error["path"] for error in answer.json()["errors"]] == [
        "operations[3].pool",
        "operations[4].url",
        "operations[5].url",
        "operations[6].engine_id",
        "operations[7]",
    ]
    assert Engine.objects.count() == 2
    assert Engine.objects.get(engine_id="e-a").desired_state == "ready"


def test_pool_operator_changes_engines_only_in_that_pool(world: World) -> None:
    answer = Api(world, "operator_a").post("engines/bulk", {"operations": OPERATIONS})
    assert answer.status_code == 400
    assert [error["path"] for error in answer.json()["errors"]] == ["operations[1].pool"]
    assert Engine.objects.count() == 2
