"""All pages and forms of the console for all kinds of people: reads change nothing, and forms check roles."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver

from controlplane.advice.models.advice_proposal import AdviceProposal
from controlplane.platform.models.job_run import JobRun
from controlplane.request_log.models.recording import Recording
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.shadow import Shadow
from controlplane.trials.models.whatif import WhatIf
from tests.controlplane.conftest import bus
from tests.controlplane.platform.api.conftest import shared_world, world
from tests.controlplane.platform.api.test_role_matrix import dump
from tests.controlplane.platform.api.world import World
from web.urls import urlpatterns

__all__ = ["bus", "shared_world", "world"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("feed"), pytest.mark.long]

OPEN = {
    "llms-txt", "login", "login-invitation", "login-provider", "login-provider-callback", "login-passkey-options",
    "login-passkey",
}  # fmt: skip
ONES_OWN = {
    *OPEN, "login-second", "logout", "access-own-password", "access-own-app", "access-own-factor-remove",
    "access-own-passkey-options", "access-own-passkey", "access-end-others", "access-session-end",
    "tour",
}  # fmt: skip
"""What everybody may do to themselves."""
EVERYTHING = {
    "name": "new-name",
    "slug": "new-name",
    "state": "draining",
    "pool": "pool-a",
    "url": "http://10.0.9.9:8000",
    "role": "admin",
    "username": "mallory",
    "password": "correct horse battery",
    "tenant": "acme",
    "scopes": "manage",
    "number": "1",
    "instead_of": "1",
    "live": "1",
    "revision": "1",
    "expected": "1",
    "document": "{}",
    "text": "{}",
    "why": "because",
    "message": "because",
    "confirm": "pool-a",
    "active": "false",
    "engines": "3",
    "length_s": "900",
    "job": "scaling",
    "advice": "+mixed",
}


def patterns() -> list[URLPattern]:
    """Return every URL pattern of the console."""
    flat = []
    for urlpattern in urlpatterns:
        flat += urlpattern.url_patterns if isinstance(urlpattern, URLResolver) else [urlpattern]
    return flat


def address(pattern: URLPattern, world: World) -> str:
    """Return the address of an object in pool a."""
    values: dict[str, Any] = {
        "engine_id": "e-a",
        "slug": _slug(str(pattern.name)),
        "key": Canary.objects.latest("pk").key if str(pattern.name).startswith("canary") else "action-a",
        "verb": "abort",
        "key_id": world.keys["viewer_key"].key_id,
        "person_id": world.people["admin"].pk,
        "run_id": JobRun.objects.latest("pk").pk,
        "whatif_id": WhatIf.objects.latest("pk").pk,
        "shadow_id": Shadow.objects.latest("pk").pk,
        "recording_id": Recording.objects.latest("pk").pk,
        "decision_id": "none",
        "session_id": "none",
        "name": "kv-a",
        "act": "reject",
    }
    if str(pattern.name).startswith("advice"):
        values["number"] = AdviceProposal.objects.latest("pk").pk
    path = "/" + str(pattern.pattern)
    for name, converter in pattern.pattern.converters.items():
        kind = type(converter).__name__.removesuffix("Converter").lower()
        for written in (f"<{kind}:{name}>", f"<string:{name}>", f"<str:{name}>", f"<{name}>"):
            path = path.replace(written, str(values[name]) if name in values else "1")
    assert "<" not in path
    return path


def _slug(name: str) -> str:
    """Return the slug of the page's object."""
    if name.startswith(("automation", "engines-pool")):
        return "pool-a"
    return "acme" if "tenant" in name else "policy-a"


def signed_in(world: World, name: str, *, csrf: bool = False) -> Client:
    client = Client(enforce_csrf_checks=csrf)
    world.sign_in(client, name)
    return client


@pytest.mark.parametrize("pattern", patterns(), ids=lambda pattern: pattern.name)
def test_only_people_with_the_role_change_anything(world: World, pattern: URLPattern) -> None:
    # One world for all that must leave it as it is: to make one takes longer than to ask.
    path = address(pattern, world)
    before = dump()
    strangers_are_sent_to_the_login(pattern, path)
    if pattern.name in OPEN:
        # A wrong password has been counted.
        before = dump()
    reading_never_fails(world, path)
    every_form_is_guarded_against_forgery(world, path)
    if pattern.name not in ONES_OWN:
        viewers_may_send_what_they_like(world, path)
    assert dump() == before


def strangers_are_sent_to_the_login(pattern: URLPattern, path: str) -> None:
    for answer in (Client().get(path), Client().post(path, EVERYTHING)):
        if pattern.name in OPEN:
            assert answer.status_code in (200, 403, 404, 405)
        else:
            assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/login")


def reading_never_fails(world: World, path: str) -> None:
    for name in ("viewer", "operator_b", "admin", "nobody"):
        assert signed_in(world, name).get(path).status_code < 500, name
    assert signed_in(world, "admin").head(path).status_code < 500


def every_form_is_guarded_against_forgery(world: World, path: str) -> None:
    client = signed_in(world, "admin", csrf=True)
    for method in ("post", "put", "patch", "delete"):
        assert getattr(client, method)(path, EVERYTHING if method == "post" else None).status_code in (403, 405)


def viewers_may_send_what_they_like(world: World, path: str) -> None:
    for name in ("viewer", "viewer_a", "operator_b", "nobody"):
        client = signed_in(world, name)
        for body in ({}, EVERYTHING):
            assert client.post(path, body).status_code < 500, name
    assert client.put(path).status_code < 500
    assert client.delete(path).status_code < 500


def test_same_forms_work_for_people_with_the_role(world: World) -> None:
    changed, before = set(), dump()
    for pattern in patterns():
        if pattern.name not in ONES_OWN:
            # A form before may have ended the session.
            world.sessions.clear()
            signed_in(world, "admin").post(address(pattern, world), EVERYTHING)
            if (after := dump()) != before:
                changed.add(pattern.name)
            before = after
    assert len(changed) >= 5, changed
