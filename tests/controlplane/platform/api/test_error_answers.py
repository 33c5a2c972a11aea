"""Unforeseen errors and an unreachable database are problem documents too."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from controlplane.fleet.api import regions
from tests.controlplane.platform.api.world import Api

pytestmark = pytest.mark.django_db


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let every read of a region fail."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(regions.RegionsView, "rows", staticmethod(fail))


def test_an_unforeseen_error_is_a_500_without_details(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail_with(monkeypatch, RuntimeError("the secret is 42"))
    answer = api.get("regions", X_Request_Id="r-1")
    assert answer.status_code == 500
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["request_id"] == "r-1"
    assert "secret" not in answer.content.decode()
    assert "the API failed" in caplog.text


def test_a_database_that_does_not_answer_is_a_503_with_a_time_to_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, OperationalError("database is locked"))
    answer = api.get("regions")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")


def test_what_is_in_use_is_a_409_that_names_the_users(api: Api) -> None:
    answer = api.change("DELETE", "regions/here")
    assert answer.status_code == 409
    assert "pool pool-a, pool pool-b" in answer.json()["detail"]


def test_a_method_that_does_not_exist_is_a_405_with_those_that_do(api: Api) -> None:
    answer = api.call("DELETE", "engines", None)
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD, POST")
    assert answer.json()["title"] == "Method Not Allowed"
