"""Unexpected errors and an unavailable database are reported as problem documents."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from controlplane.fleet.api import regions
from tests.controlplane.platform.api.world import Api

pytestmark = pytest.mark.django_db


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Make every read of a region fail."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(regions.RegionsView, "rows", staticmethod(fail))


def test_unexpected_error_is_a_500_without_details(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail_with(monkeypatch, RuntimeError("the secret is 42"))
    answer = api.get("regions", X_Request_Id="r-1")
    assert answer.status_code == 500
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["request_id"] == "r-1"
    assert "secret" not in answer.content.decode()
    assert "the API failed" in caplog.text


def test_unavailable_database_is_a_503_with_retry_after(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, OperationalError("database is locked"))
    answer = api.get("regions")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")


def test_deletion_of_an_object_in_use_is_a_409_that_names_its_users(api: Api) -> None:
    answer = api.change("DELETE", "regions/here")
    assert answer.status_code == 409
    assert "pool pool-a, pool pool-b" in answer.json()["detail"]


def test_unsupported_method_is_a_405_with_the_supported_ones(api: Api) -> None:
    answer = api.call("DELETE", "engines", None)
    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD, POST")
    assert answer.json()["title"] == "Method Not Allowed"
