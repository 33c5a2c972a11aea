"""Every address of the management API with every method and every kind of caller."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.apps import apps
from django.http import HttpResponse

from controlplane.access.models.group_grant import GroupGrant
from controlplane.advice.models.advice_proposal import AdviceProposal
from controlplane.fleet.models.model_service import ModelService
from controlplane.incidents.models.incident import Incident
from controlplane.notifications.models.notification import NotificationRoute, Silence
from controlplane.objectives.objective import Objective
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.role import Role
from controlplane.project.api_urls import urlpatterns
from controlplane.request_log.models.recording import Recording
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.shadow import Shadow
from controlplane.trials.models.whatif import WhatIf
from controlplane.usage.models.budget import Budget, ModelPrice
from tests.controlplane.platform.api.request_examples import CHANGES, RECORDING, SAFE, Example
from tests.controlplane.platform.api.world import Api, World

pytestmark = [pytest.mark.django_db, pytest.mark.long]

VIEWS = {pattern.callback.view_class.__name__: pattern.callback.view_class for pattern in urlpatterns}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MONEY = ("budgets", "prices")
WATCHES = ("notification_channels", "notification_routes", "objectives")
ACCESS = ("tenants", "keys", "people", "group_grants")
ADMIN_NOUNS = ("sovereignty", "call_graph", "services", "regions", "pools", *ACCESS, *MONEY, *WATCHES)
WHOLE_FLEET = (
    "sovereignty",
    "services",
    *ACCESS,
    "kv_nodes",
    "kv_moves",
    "call_graph",
    *MONEY,
    "notifications",
    *WATCHES,
    "silences",
    "sign_in_policy",
    "alert_rules",
)
ASK_ONLY = {"PolicyCheck"}
"""POSTs that change nothing, and are open to every caller with write permission."""


def real(world: World, path: str) -> str:
    """Return the path with ids of this world."""
    run, event = JobRun.objects.filter(job="probe").latest("pk").pk, AuditEvent.objects.latest("pk").pk
    recording, whatif = Recording.objects.latest("pk").pk, WhatIf.objects.latest("pk").pk
    key, canary = world.keys["traffic_key"].key_id, Canary.objects.latest("pk").key
    shadow = Shadow.objects.latest("pk").pk
    ids = {"key": key, "run": run, "event": event, "recording": recording, "whatif": whatif}
    ids["incident"] = Incident.objects.latest("pk").pk
    ids["proposal"] = AdviceProposal.objects.latest("pk").pk
    service = ModelService.objects.latest("pk").slug
    grant = GroupGrant.objects.latest("pk").grant_id
    ids |= {"budget": Budget.objects.latest("pk").slug, "price": ModelPrice.objects.latest("pk").slug}
    ids |= {"route": NotificationRoute.objects.latest("pk").slug, "silence": Silence.objects.latest("pk").slug}
    ids["objective"] = Objective.objects.latest("pk").slug
    return path.format(**ids, service=service, shadow=shadow, canary=canary, grant=grant)


def said(body: Any) -> Any:
    """Return the body with ids of this world."""
    if not isinstance(body, dict):
        return body
    return {name: Recording.objects.latest("pk").pk if value == RECORDING else value for name, value in body.items()}


def sender(world: World, example: Example) -> Callable[[str | None], HttpResponse]:
    """Return a function that sends a change as a caller, with the ETag that an admin gets now."""
    path, body = real(world, example.path), said(example.body)
    headers = {"If_Match": Api(world).get(path)["ETag"]} if example.guarded else {}
    return lambda caller: Api(world, caller).call(example.method, path, body, example.media_type, **headers)


def send(world: World, caller: str | None, example: Example) -> HttpResponse:
    """Send a change as the caller, with the ETag that an admin gets."""
    return sender(world, example)(caller)


def dump() -> str:
    """Return everything that is stored except sessions and login times."""
    kept = [model for model in apps.get_models(include_auto_created=True) if "session" not in model._meta.model_name]
    rows = [(model._meta.label_lower, row) for model in kept for row in model._default_manager.order_by("pk").values()]
    return "\n".join(f"{name} {row | {'last_login': None}}" for name, row in rows)


def test_every_address_and_method_has_an_example() -> None:
    declared = {
        (name, method)
        for name, view in VIEWS.items()
        for method in METHODS
        if hasattr(view, method.lower()) and name != "Nothing"
    }
    assert declared == set(CHANGES) | {(name, "GET") for name in SAFE}


@pytest.mark.parametrize("key", CHANGES, ids=" ".join)
def test_admin_may_do_everything(world: World, key: tuple[str, str]) -> None:
    for caller in ("admin", "admin_key"):
        example = CHANGES[key]
        answer = send(world, caller, example)
        assert answer.status_code == example.status or caller == "admin_key", answer.content
        assert answer.status_code not in (401, 403, 404, 500)


@pytest.mark.parametrize("key", CHANGES, ids=" ".join)
def test_viewers_can_change_nothing(world: World, key: tuple[str, str]) -> None:
    before, send_as = dump(), sender(world, CHANGES[key])
    for caller in ("viewer", "viewer_a", "viewer_key", "viewer_a_key", "nobody", "traffic_key", None):
        answer = send_as(caller)
        assert answer.status_code == (401 if caller is None else 403), caller
        assert answer["Content-Type"] == "application/problem+json"
    assert dump() == before


def of_operators(key: tuple[str, str]) -> bool:
    """Return whether the operators of one pool may make the change."""
    ours = ("engines", "policies", "actions", "recordings", "whatif", "shadows", "canaries", "advice", "savings")
    if CHANGES[key].path == "advice/stop":
        # It concerns all pools.
        return False
    return CHANGES[key].path.startswith(ours) or (
        CHANGES[key].path.startswith("pools/") and VIEWS[key[0]].changes_need == Role.OPERATOR
    )


@pytest.mark.parametrize(
    "key",
    [key for key in CHANGES if CHANGES[key].path.startswith(ADMIN_NOUNS) and not of_operators(key)],
    ids=" ".join,
)
def test_operators_cannot_administer(world: World, key: tuple[str, str]) -> None:
    before, send_as = dump(), sender(world, CHANGES[key])
    for caller in ("operator", "operator_a", "operator_key", "operator_a_key"):
        assert send_as(caller).status_code == 403, caller
    assert dump() == before


@pytest.mark.parametrize("key", [key for key in CHANGES if of_operators(key)], ids=" ".join)
def test_operators_change_only_their_own_pools(world: World, key: tuple[str, str]) -> None:
    before, example = dump(), CHANGES[key]
    for caller in ("operator_b", "operator_b_key", "operator_a_viewer_b"):
        foreign = _moved_to_b(example) if caller == "operator_a_viewer_b" else example
        if caller == "operator_a_viewer_b" and foreign == example:
            # Its ids are numbers and name no pool.
            continue
        status = send(world, caller, foreign).status_code
        if key[0] in ASK_ONLY:
            assert status == 200
        elif key[0] in (
            "Engines",
            "EngineBulk",
            "Recordings",
            "RecordingUpload",
            "WhatIfs",
            "Shadows",
            "Canaries",
            "AdviceSearch",
            "SavingsView",
        ):
            assert status in (400, 403)
        elif key == ("Policies", "POST"):
            assert status == 403
        else:
            assert status == (403 if caller == "operator_a_viewer_b" else 404)
    assert dump() == before


def _moved_to_b(example: Example) -> Example:
    text = json.dumps([example.path, example.body])
    for name in ("policy-", "pool-", "e-", "action-"):
        text = (
            text.replace(f'"{name}a', f'"{name}b').replace(f"/{name}a", f"/{name}b").replace(f"={name}a", f"={name}b")
        )
    path, body = json.loads(text)
    return replace(example, path=path, body=body)


@pytest.mark.parametrize(
    "key",
    [key for key in CHANGES if of_operators(key) and CHANGES[key].path not in ("policies", "policies/validate")],
    ids=" ".join,
)
def test_operators_may_change_their_own_pool(world: World, key: tuple[str, str]) -> None:
    for caller in ("operator_a", "operator_a_key"):
        answer = send(world, caller, CHANGES[key])
        assert answer.status_code == CHANGES[key].status or caller == "operator_a_key", answer.content
        assert answer.status_code not in (401, 403, 404, 500)


@pytest.mark.parametrize("key", [key for key in CHANGES if CHANGES[key].path.startswith("kv_nodes")], ids=" ".join)
def test_kv_nodes_require_the_operator_role_in_all_pools(world: World, key: tuple[str, str]) -> None:
    before = dump()
    for caller in ("operator_a", "operator_a_key", "operator_a_viewer_b"):
        assert send(world, caller, CHANGES[key]).status_code == 403, caller
    assert dump() == before
    for caller in ("operator", "operator_key"):
        assert send(world, caller, CHANGES[key]).status_code == CHANGES[key].status


def test_all_autopilots_are_stopped_by_operators_of_all_pools_alone(world: World) -> None:
    before, example = dump(), CHANGES["AdviceStop", "POST"]
    for caller in ("operator_a", "operator_a_key", "operator_b", "viewer"):
        assert send(world, caller, example).status_code == 403, caller
    assert dump() == before
    assert send(world, "operator", example).status_code == 200


@pytest.mark.parametrize("name", SAFE)
def test_reading_changes_nothing(world: World, name: str) -> None:
    before = dump()
    for path in SAFE[name]:
        statuses, address = {}, real(world, path)
        for caller in (*world.people, *world.texts, None):
            answer = Api(world, caller).get(address)
            assert answer.status_code == _expected_status(name, path, caller), (caller, answer.content)
            statuses[answer.status_code] = caller
        for status, caller in statuses.items():
            head = Api(world, caller).call("HEAD", address)
            assert (head.status_code, head.content) == (status, b"")
    assert dump() == before


def _expected_status(name: str, path: str, caller: str | None) -> int:
    if caller is None:
        return 401
    if caller in ("nobody", "traffic_key"):
        return 403
    limited = caller.removesuffix("_key") in ("viewer_a", "operator_a", "operator_a_viewer_b", "operator_b")
    if limited and path.startswith(WHOLE_FLEET):
        return 403
    of_pool_a = path.startswith(
        (
            "pools/",
            "engines/",
            "policies/policy-a",
            "decisions/",
            "recordings/",
            "whatif/",
            "shadows/",
            "canaries/",
            "incidents/",
            "advice/proposals/",
        )
    )
    if (limited and name == "OneJobRun") or (caller in ("operator_b", "operator_b_key") and of_pool_a):
        return 404
    return 404 if limited and name == "OneAuditEvent" else 200


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "Nothing"])
def test_unsupported_methods_are_rejected(world: World, name: str) -> None:
    paths = {example.path for (view, _), example in CHANGES.items() if view == name} | set(SAFE.get(name, []))
    for path in paths:
        for method in (*METHODS, "OPTIONS", "TRACE"):
            if hasattr(VIEWS[name], method.lower()) and method not in ("OPTIONS", "TRACE"):
                continue
            answer = Api(world).call(method, real(world, path))
            assert answer.status_code == 405
            assert answer["Content-Type"] == "application/problem+json"
            assert "GET" in answer["Allow"] or "POST" in answer["Allow"]


def seen(world: World, caller: str, path: str, field: str) -> set[Any]:
    return {row[field] for row in Api(world, caller).get(path).json()["results"]}


def test_lists_hold_only_objects_of_the_callers_pools(world: World) -> None:
    assert seen(world, "operator_a", "engines", "engine_id") == {"e-a"}
    assert seen(world, "viewer", "engines", "engine_id") == {"e-a", "e-b"}
    assert seen(world, "operator_b", "pools", "slug") == {"pool-b"}
    assert seen(world, "operator_b_key", "engines", "engine_id") == {"e-b"}
    assert seen(world, "operator_b", "policies", "slug") == {"policy-b"}
    assert seen(world, "operator_b", "jobs", "id") == set()
    assert seen(world, "operator_b", "audit", "pool") == {"pool-b", ""}
    assert seen(world, "operator_b", "audit?object_kind=policy", "object_id") == {"policy-b"}
    assert seen(world, "operator_b", "audit?object_kind=tenant", "object_id") == set()
