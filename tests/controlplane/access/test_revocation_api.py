"""`POST /api/v1/keys/{id}/revoke` while the database is not writable."""

from __future__ import annotations

import json

import pytest

from controlplane.access.stored_revocations import store_waiting
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.outage.bus_revocations import bus_revocations
from gateway.bus.bus import InProcessBus
from tests.controlplane.platform.api.conftest import shared_world, world
from tests.controlplane.platform.api.world import Api, World
from tests.controlplane.platform.outage.unwritable_database import FULL, unwritable

__all__ = ["shared_world", "world"]

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "once"}])
@pytest.mark.parametrize("caller", ["admin", "admin_key"])
def test_revocation_over_the_bus_is_accepted_and_reported_as_not_stored(
    world: World, caller: str, headers: dict[str, str]
) -> None:
    key = world.keys["viewer_key"]
    with unwritable():
        for _ in range(2):
            answer = Api(world, caller).call("POST", f"keys/{key.key_id}/revoke", {"why": "leaked"}, **headers)
            assert answer.status_code == 202, answer.content
            shown = answer.json()
            assert (shown["key_id"], shown["stored"]) == (key.key_id, False)
            assert shown["revoked_at"]
    assert store_waiting(bus_revocations()) == 1
    answer = Api(world, caller).call("POST", f"keys/{key.key_id}/revoke", {})
    assert (answer.status_code, answer.json()["stored"]) == (200, True)


def test_stored_revocation_has_the_usual_response(world: World) -> None:
    answer = Api(world).post(f"keys/{world.keys['viewer_key'].key_id}/revoke", {})
    assert (answer.status_code, answer.json()["stored"]) == (200, True)


def test_management_api_rejects_a_key_revoked_over_the_bus(world: World) -> None:
    with unwritable():
        assert Api(world, "admin_key").get("tenants").status_code == 200
        Api(world).post(f"keys/{world.keys['admin_key'].key_id}/revoke", {})
        assert Api(world, "admin_key").get("tenants").status_code == 401
        assert Api(world, "viewer_key").get("pools").status_code == 200


def test_revocation_without_database_and_bus_is_an_error(world: World, bus: InProcessBus) -> None:
    key = world.keys["viewer_key"]
    bus.connected = False
    with unwritable():
        answer = Api(world).post(f"keys/{key.key_id}/revoke", {})
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert "not revoked" in answer.json()["detail"]
    assert ApiKey.objects.get(pk=key.pk).revoked_at is None


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (FULL, "disk is full"),
        ("attempt to write a readonly database", "read-only"),
        ("database is locked", "Other writes"),
        ("server closed the connection", "does not answer"),
    ],
)
def test_other_changes_report_why_nothing_was_changed(world: World, message: str, sentence: str) -> None:
    with unwritable(message):
        answer = Api(world).post("tenants", {"slug": "new", "name": "New"})
    assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
    assert sentence in answer.json()["detail"]


def test_openapi_document_has_the_response_of_a_revocation(world: World) -> None:
    document = json.loads(Api(world).get("/api/schema/").content)
    answers = document["paths"]["/api/v1/keys/{key_id}/revoke"]["post"]["responses"]
    assert {"200", "202"} <= set(answers)
    assert "stored" in document["components"]["schemas"]["RevokedApiKey"]["properties"]
