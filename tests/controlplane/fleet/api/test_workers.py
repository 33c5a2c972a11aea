"""Clients of SGLang's router and of Dynamo's selection service manage workers with their own calls."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from pytest_django import Settings

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from gateway.contracts.worker_ids import worker_id, worker_name
from tests.controlplane.platform.api.world import Api, World
from tests.controlplane.simulated_engine import SimulatedEngine

pytestmark = [pytest.mark.django_db, pytest.mark.processes]


@pytest.fixture(scope="module")
def running() -> Iterator[list[SimulatedEngine]]:
    engines = [SimulatedEngine(model="org/Chat-8B"), SimulatedEngine(model="org/Chat-8B", events=False)]
    for engine in engines:
        engine.start()
    yield engines
    for engine in engines:
        engine.stop()


@pytest.fixture
def client(world: World, settings: Settings) -> Api:
    settings.ALLOW_LOOPBACK_ENGINES = True
    return Api(world, "admin_key")


def test_sglangs_calls_add_list_and_remove_a_worker(client: Api, running: list[SimulatedEngine]) -> None:
    url = running[0].url
    before = client.get("/list_workers").json()["urls"]
    answer = client.post(f"/add_worker?url={quote(url)}", None)
    assert (answer.status_code, answer.content.decode()) == (200, f"Successfully added worker: {url}")
    engine = Engine.objects.get(url=url)
    assert (engine.pool.served_model, engine.pool.key_source, engine.desired_state) == (
        "org/Chat-8B", "exact", "maintenance",
    )  # fmt: skip
    # It serves after its preflight, which the jobs process runs.
    Engine.objects.filter(pk=engine.pk).update(desired_state="ready")
    assert sorted(client.get("/list_workers").json()["urls"]) == sorted([*before, url])
    assert {"worker": url, "load": -1} in client.get("/get_loads").json()["workers"]
    answer = client.post(f"/remove_worker?url={quote(url)}", None)
    assert answer.content.decode() == f"Successfully removed worker: {url}; it finishes its requests"
    assert client.get("/list_workers").json()["urls"] == before
    engine.refresh_from_db()
    assert engine.desired_state == "draining"


def test_an_engine_without_events_is_added_by_estimated_hits(client: Api, running: list[SimulatedEngine]) -> None:
    assert client.post("/workers", {"url": running[1].url}).json()["success"] is True
    assert Pool.objects.get(served_model="org/Chat-8B").key_source == "approximate"


def test_dynamos_registration_keeps_its_number(client: Api, running: list[SimulatedEngine]) -> None:
    endpoint = {"0": running[1].events_endpoint}
    body = {"worker_id": 7, "model_name": "org/Chat-8B", "endpoint": running[1].url, "kv_events_endpoints": endpoint}
    answer = client.post("/workers", body)
    assert answer.status_code == 201, answer.content
    row = answer.json()
    assert (row["worker_id"], row["endpoint"], row["routing_group"]) == (7, running[1].url, "default")
    engine = Engine.objects.get(url=running[1].url)
    assert (engine.name, engine.kv_events_endpoint) == ("worker-7", running[1].events_endpoint)
    assert client.get("/workers/7").json() == client.get(f"/workers/{engine.engine_id}").json() == row
    assert client.call("DELETE", "/workers/7").json()["success"] is True
    assert client.get("/workers/9").status_code == 404
    assert client.call("DELETE", "/workers/9").status_code == 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "url"),
        ({"url": "nonsense"}, "http"),
        ({"url": "http://127.0.0.1:1"}, "127.0.0.1"),
        ({"endpoint": "http://127.0.0.1:1", "worker_id": "x"}, "number"),
        ({"url": 5}, "url"),
    ],
)
def test_bad_registrations_are_rejected(client: Api, body: dict[str, object], words: str) -> None:
    answer = client.post("/workers", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "ADD_WORKER_FAILED")
    assert words in answer.json()["error"]


def test_a_worker_of_another_model_is_rejected(client: Api, running: list[SimulatedEngine]) -> None:
    answer = client.post("/workers", {"endpoint": running[0].url, "worker_id": 1, "model_name": "other"})
    assert "not other" in answer.json()["error"]
    assert not Engine.objects.filter(url=running[0].url).exists()


def test_an_address_outside_the_allowed_networks_is_not_asked(client: Api, settings: Settings) -> None:
    settings.ENGINE_NETWORKS = ()
    answer = client.post("/add_worker?url=http://203.0.113.9:8000", None)
    assert answer.status_code == 400
    assert "no allowed engine network" in answer.content.decode()


@pytest.mark.parametrize(("caller", "reads", "changes"), [
    (None, 401, 401), ("traffic_key", 403, 403), ("viewer_key", 200, 403), ("operator_key", 200, 403),
])  # fmt: skip
def test_calls_need_a_key_of_the_scope_manage_and_changes_an_admins(
    world: World, caller: str | None, reads: int, changes: int
) -> None:
    api = Api(world, caller)
    for path in ("/list_workers", "/get_loads", "/workers", "/workers/e-a"):
        assert api.get(path).status_code == reads, path
    assert api.post("/add_worker?url=http://127.0.0.1:1", None).status_code == changes
    assert api.post("/remove_worker?url=http://10.0.1.1:8000", None).status_code == changes
    assert api.call("DELETE", "/workers/e-a").status_code == changes
    assert Engine.objects.get(engine_id="e-a").desired_state == "ready"


def test_keys_of_one_pool_see_its_workers_alone(world: World) -> None:
    rows = Api(world, "viewer_a_key").get("/workers").json()["workers"]
    assert {row["id"] for row in rows} == {"e-a"}


def test_worker_numbers_are_those_of_the_registration_or_stable() -> None:
    assert worker_id("eng-1", worker_name(12)) == 12
    assert worker_id("eng-1", "e-1") == worker_id("eng-1", "other") < 2**53
    assert worker_id("eng-1", "e-1") != worker_id("eng-2", "e-1")
