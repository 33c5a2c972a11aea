"""People authenticate by session with a CSRF token, programs by API key with the scope manage (R35, R43)."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.middleware.csrf import get_token
from django.test import Client, RequestFactory
from django.utils import timezone

from controlplane.fleet.models.region import Region
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.project.api_urls import urlpatterns
from tests.controlplane.platform.api.request_examples import CHANGES
from tests.controlplane.platform.api.test_role_matrix import VIEWS, dump, real
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
THERE = {"slug": "there", "name": "There"}


@pytest.mark.parametrize("key", CHANGES, ids=" ".join)
def test_session_without_its_csrf_token_changes_nothing(world: World, key: tuple[str, str]) -> None:
    api, example = Api(world), CHANGES[key]
    path = real(world, example.path)
    headers = {"If_Match": api.get(path)["ETag"]} if example.guarded else {}
    api.client.handler.enforce_csrf_checks = True
    before = dump()
    answer = api.call(example.method, path, example.body, **headers)
    assert answer.status_code == 403
    assert "CSRF" in answer.json()["detail"]
    assert dump() == before


def test_session_with_its_csrf_token_may_change(world: World) -> None:
    api = Api(world)
    api.client.handler.enforce_csrf_checks = True
    token = get_token(RequestFactory().get("/"))
    api.client.cookies["csrftoken"] = token
    assert api.post("regions", THERE, X_CSRFToken=token).status_code == 201


def test_key_needs_no_csrf_token(world: World) -> None:
    api = Api(world, "admin_key")
    api.client = Client(enforce_csrf_checks=True)
    assert api.post("regions", THERE).status_code == 201


def test_invalid_key_is_rejected_despite_a_valid_session(world: World) -> None:
    assert Api(world).get("regions", Authorization="Bearer hw_wrong").status_code == 401


def test_anonymous_requests_get_a_problem_and_no_redirect(world: World) -> None:
    for path in ("/api/v1/engines", "/api/schema/", "/api/v1/nothing", "/api/"):
        answer = Client().get(path)
        assert answer.status_code == 401
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["detail"].startswith("Sign in")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"expires_at": timezone.now() - timedelta(seconds=1)}, 401),
        ({"revoked_at": timezone.now()}, 401),
        ({"scopes": ["infer", "route"]}, 403),
        ({"expires_at": timezone.now() + timedelta(days=1)}, 200),
    ],
)
def test_stored_state_of_a_key_decides_its_access(world: World, change: dict[str, object], status: int) -> None:
    ApiKey.objects.filter(pk=world.keys["admin_key"].pk).update(**change)
    assert Api(world, "admin_key").get("engines").status_code == status


def test_revoked_key_stops_working_at_once(world: World, api: Api) -> None:
    program = Api(world, "operator_key")
    assert program.get("engines").status_code == 200
    assert api.post(f"keys/{world.keys['operator_key'].key_id}/revoke", {"why": "leaked"}).status_code == 200
    assert program.get("engines").status_code == 401


def test_blocked_person_loses_access_at_once(world: World) -> None:
    operator = Api(world, "operator")
    world.people["operator"].is_active = False
    world.people["operator"].save()
    assert operator.get("engines").status_code == 401


def test_database_dump_holds_no_usable_key(world: World, api: Api) -> None:
    texts = [*world.texts.values(), api.post("keys", {"tenant": "acme", "name": "new"}).json()["text"]]
    stream = StringIO()
    call_command("dumpdata", stdout=stream)
    stored = stream.getvalue() + dump()
    for text in texts:
        assert text[11:] not in stored
    hashes = list(ApiKey.objects.values_list("sha256", flat=True))
    for value in hashes:
        assert Api(world, None).get("engines", Authorization=f"Bearer {value}").status_code == 401
        assert Api(world, None).get("engines", Authorization=f"Bearer hw_{value}").status_code == 401


def test_no_response_and_no_event_holds_a_hash(world: World, api: Api) -> None:
    hashes = set(ApiKey.objects.values_list("sha256", flat=True))
    shown = api.get("keys?limit=500").content.decode() + api.get("audit?limit=500").content.decode()
    assert "sha256" not in shown
    assert not any(value in shown for value in hashes)


def test_audit_names_person_key_and_request(world: World, api: Api) -> None:
    api.post("regions", {**THERE, "why": "new site"}, X_Request_Id="req-1")
    Api(world, "admin_key").call("DELETE", "regions/there?why=gone%20again", If_Match='W/"1"', X_Request_Id="req-2")
    deleted, created = api.get("audit?object_kind=region&object_id=there").json()["results"]
    assert (created["actor"], created["via"], created["request_id"], created["why"]) == (
        "admin",
        "api",
        "req-1",
        "new site",
    )
    assert created["before"] is None
    assert created["after"] == {"slug": "there", "name": "There", "revision": 1}
    assert (deleted["actor"], deleted["request_id"], deleted["why"]) == ("key admin_key", "req-2", "gone again")
    assert deleted["before"] == created["after"]
    assert AuditEvent.objects.get(verb="region.delete").actor is None
    assert not Region.objects.filter(slug="there").exists()


def test_problem_carries_the_id_of_its_request(world: World, api: Api) -> None:
    assert api.get("engines/none", X_Request_Id="abc").json()["request_id"] == "abc"
    made_up = api.get("engines/none", X_Request_Id="a\tb").json()["request_id"]
    assert len(made_up) == 36


def test_every_view_requires_authentication(world: World) -> None:
    for name, view in VIEWS.items():
        assert [kind.__name__ for kind in view.authentication_classes] == [
            "KeyAuthentication",
            "SessionAuthentication",
        ]
        assert view.initial.__qualname__ == "ApiView.initial", name
    assert len({str(pattern.pattern) for pattern in urlpatterns}) == len(urlpatterns)


def test_responses_are_never_cached_by_proxies(api: Api) -> None:
    assert "private" in api.get("engines")["Cache-Control"]
    assert json.loads(api.get("engines").content)["results"]
