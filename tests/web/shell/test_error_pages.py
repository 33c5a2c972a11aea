"""Errors of addresses are shown in the console's own page, with a link back."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from controlplane.access.models.role_grant import RoleGrant
from controlplane.platform.role import Role
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def viewer(client: Client) -> Client:
    user = User.objects.create(username="viewer")
    RoleGrant.objects.create(user=user, role=Role.VIEWER)
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    ("path", "back"),
    [
        ("/nope", "Open Fleet"),
        ("/policies/nope", "Open Policies"),
        ("/automation/nope", "Open Automation"),
        ("/trials/whatif/99", "Open What-ifs"),
        ("/trials/canaries/nope", "Open Canaries"),
    ],
)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_unknown_address_is_reported_in_the_shell(viewer: Client, path: str, back: str, theme: str) -> None:
    viewer.cookies["theme"] = theme
    answer = viewer.get(path, headers={"accept": BROWSER})
    assert answer.status_code == 404
    page = page_text(answer)
    assert f'data-theme="{theme}"' in page
    assert 'aria-label="Main"' in page
    assert f"<code>{path}</code>" in page
    assert back in page


def test_get_of_a_form_address_links_to_its_page(viewer: Client) -> None:
    answer = viewer.get("/access/keys/some/revoke")
    assert answer.status_code == 405
    assert answer["Allow"] == "POST"
    assert b"accepts forms only" in answer.content
    assert b"Open Access" in answer.content


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("POST", "/nope", BROWSER),
        ("DELETE", "/models/nope", BROWSER),
        ("GET", "/nope", "*/*"),
        ("GET", "/policies/nope", "application/json"),
    ],
)
def test_program_gets_json_that_names_the_paths(viewer: Client, method: str, path: str, accept: str) -> None:
    answer = viewer.generic(method, path, headers={"accept": accept})
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/json")
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("not_found_error", "not_found")
    assert "/v1/chat/completions" in error["message"]


def test_api_keeps_its_own_errors(viewer: Client) -> None:
    assert viewer.get("/api/v1/nope")["Content-Type"] == "application/problem+json"
    assert viewer.generic("TRACE", "/api/v1/pools")["Content-Type"] == "application/problem+json"


def test_anonymous_visitors_get_a_page_without_names(client: Client) -> None:
    answer = client.get("/nope", headers={"accept": BROWSER})
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert b"Signed in" not in answer.content
    assert b'aria-label="Main"' not in answer.content


def test_expired_form_shows_a_remedy(db: None) -> None:
    user = User.objects.create(username="viewer")
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(user)
    answer = careful.post("/logout")
    assert answer.status_code == 403
    assert b"This form has expired" in answer.content


@override_settings(DEBUG=False)
def test_server_error_page_needs_no_session(monkeypatch: pytest.MonkeyPatch, viewer: Client) -> None:
    def fail(*args: object, **rest: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("web.automation.jobs.render", fail)
    viewer.raise_request_exception = False
    answer = viewer.get("/jobs")
    assert answer.status_code == 500
    assert b"Internal error" in answer.content
    assert b"planted" not in answer.content


def test_markup_in_an_address_is_escaped(viewer: Client) -> None:
    answer = viewer.get("/<img src=x onerror=alert(1)>", headers={"accept": BROWSER})
    assert b"<img src=x" not in answer.content
