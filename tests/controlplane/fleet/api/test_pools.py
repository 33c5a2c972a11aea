"""Pools over REST: the effect of a PUT that omits the mode."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.audit_event import AuditEvent
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
BODY = {"name": "Renamed", "region": "here", "served_model": "m", "policy": "policy-a"}
PATH = "pools/pool-a"


@pytest.fixture
def observing(api: Api) -> Api:
    assert api.change("PATCH", PATH, {"mode": "observe"}).status_code == 200
    return api


def stored() -> tuple[str, str]:
    pool = Pool.objects.get(slug="pool-a")
    return pool.name, pool.mode


def test_put_without_the_mode_is_rejected_for_an_observing_pool(observing: Api) -> None:
    before, events = stored(), AuditEvent.objects.count()
    answer = observing.change("PUT", PATH, BODY)
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert error["path"] == "mode"
    assert 'send "mode": "observe"' in error["message"]
    assert (stored(), AuditEvent.objects.count()) == (before, events)


@pytest.mark.parametrize("mode", ["observe", "route"])
def test_put_with_a_mode_sets_that_mode(observing: Api, mode: str) -> None:
    answer = observing.change("PUT", PATH, {**BODY, "mode": mode})
    assert (answer.status_code, answer.json()["mode"]) == (200, mode)
    assert stored() == ("Renamed", mode)


def test_response_for_an_observing_pool_can_be_sent_back(observing: Api) -> None:
    shown = observing.get(PATH).json()
    assert observing.change("PUT", PATH, shown).json() == shown


def test_routing_pool_keeps_its_mode_without_the_field(api: Api) -> None:
    answer = api.change("PUT", PATH, {**BODY, "block_tokens": 256})
    assert (answer.status_code, answer.json()["mode"]) == (200, "route")
    assert api.change("PUT", PATH, BODY).json()["block_tokens"] == 512


def test_patch_keeps_the_mode(observing: Api) -> None:
    assert observing.change("PATCH", PATH, {"name": "Renamed"}).json()["mode"] == "observe"


def test_new_pool_routes_by_default(api: Api) -> None:
    assert api.post("pools", {**BODY, "slug": "one"}).json()["mode"] == "route"
    assert api.post("pools", {**BODY, "slug": "two", "mode": "observe"}).json()["mode"] == "observe"


def test_openapi_document_describes_the_mode(world: World) -> None:
    document: dict[str, Any] = Api(world).get("/api/schema/").json()
    put = document["paths"]["/api/v1/pools/{slug}"]["put"]
    assert "rejected with 400" in put["description"]
    shapes = document["components"]["schemas"]
    changed, new = (shapes[name]["properties"]["mode"] for name in ("PoolChange", "NewPool"))
    assert "default" not in changed
    assert "must name it" in changed["description"]
    assert new["default"] == "route"
    assert "mode" not in shapes["PoolChange"]["required"]
