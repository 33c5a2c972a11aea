"""Pages report an unavailable database with a remedy. Other errors are left to Django."""

from __future__ import annotations

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError
from django.test import Client

from tests.page_text import page_text

SESSION = "a" * 32


@pytest.fixture
def client() -> Client:
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = SESSION
    return client


def fail_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_store: SessionStore) -> None:
        raise error

    monkeypatch.setattr(SessionStore, "load", load)


@pytest.mark.parametrize("error", [OperationalError("gone"), InterfaceError("closed")])
def test_page_without_its_database_is_503_with_a_remedy(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_with(error, monkeypatch)
    page = client.get("/policies")
    assert page.status_code == 503
    assert (page["Retry-After"], page["Refresh"], page["Cache-Control"]) == ("2", "2", "no-store")
    text = page_text(page)
    assert "The database does not answer" in text
    assert "manage.py doctor" in text
    assert "gone" not in text


def test_locked_database_is_distinguished_from_an_unavailable_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(OperationalError("database is locked"), monkeypatch)
    page = client.get("/policies")
    assert (page.status_code, page["Retry-After"]) == (503, "2")
    assert "The database is busy" in page_text(page)
    assert "Nothing was changed" in page_text(page)


def test_form_is_not_resent_automatically(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(OperationalError(), monkeypatch)
    page = client.post("/access/tenants", {})
    assert page.status_code in (403, 503)
    assert "Refresh" not in page


def test_api_responds_with_a_problem(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(OperationalError(), monkeypatch)
    answer = client.get("/api/v1/pools")
    assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")


@pytest.mark.parametrize("error", [RuntimeError(), OperationalError("no such table: auth_user")])
def test_other_error_is_a_500(client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    fail_with(error, monkeypatch)
    assert client.get("/policies").status_code == 500
