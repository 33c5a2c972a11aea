"""People by REST: roles by pool, deactivation, and what no answer contains."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from controlplane.platform.models.audit_event import AuditEvent
from tests.controlplane.platform.api.conftest import shared_world, world
from tests.controlplane.platform.api.world import Api, World

__all__ = ["shared_world", "world"]

pytestmark = pytest.mark.django_db
GOOD = "correct-horse-battery"


def test_person_is_created_changed_and_deactivated_by_rest(world: World) -> None:
    api = Api(world, "admin_key")
    made = api.post("people", {"username": "op", "roles": ["pool-a=operator"], "password": GOOD})
    assert made.status_code == 201
    assert made.json() == {
        "username": "op", "is_active": True, "is_superuser": False, "roles": ["pool-a=operator"], "group_roles": [],
        "revision": 1,
    }  # fmt: skip
    assert User.objects.get(username="op").check_password(GOOD)
    assert api.change("PATCH", "people/op", {"roles": ["pool-b=viewer", "pool-a=viewer"]}).json()["roles"] == [
        "pool-a=viewer",
        "pool-b=viewer",
    ]
    world.people["op"] = User.objects.get(username="op")
    own = Api(world, "op")
    assert own.get("engines").status_code == 200
    assert own.get("people").status_code == 403
    assert api.change("PATCH", "people/op", {"is_active": False}).json()["is_active"] is False
    assert own.get("engines").status_code in (401, 403)
    assert [row["username"] for row in api.get("people?is_active=false").json()["results"]] == ["op"]
    events = AuditEvent.objects.filter(object_kind="person", object_id="op").order_by("pk")
    assert [event.verb for event in events] == ["person.create", "person.change", "person.change"]
    assert GOOD not in str(list(events.values()))


def test_invalid_people_are_rejected_with_each_problem(world: World) -> None:
    api = Api(world)
    answer = api.post("people", {"username": "a b", "roles": ["nowhere=viewer"], "password": "short"})
    assert answer.status_code == 400
    assert {error["path"] for error in answer.json()["errors"]} == {"username", "roles", "password"}
    assert api.change("PATCH", "people/admin", {"roles": []}).status_code == 400
    assert api.change("PATCH", "people/viewer", {"username": "other"}).status_code == 400
    assert api.call("PATCH", "people/viewer", {"roles": []}, If_Match='"7"').status_code == 412
    assert api.call("DELETE", "people/viewer").status_code == 405
