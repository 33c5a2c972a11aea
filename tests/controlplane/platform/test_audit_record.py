"""Values that the audit records, and values that it omits.

Each request has an actor, and an id of the edge, the client, or its own.
"""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.db import transaction
from django.test import RequestFactory

from controlplane.platform.actor import CONSOLE, program
from controlplane.platform.audit import REDACTED, record, redacted
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.request_actor import actor_of, request_id_of
from gateway.server.http.request_head import SCOPE_KEY, RequestHead


def test_texts_under_secret_names_are_omitted_and_numbers_are_kept() -> None:
    cost = {"per_token_s": 1e-5, "per_token_squared_s": 2e-9, "max_tokens": 64, "sticky_token": True}
    recorded = redacted(
        {"cost": [cost], "password": "p", "deep": {"webhook_secret": "s", "bearer": "b", "api_token": ""}}
    )
    assert recorded["cost"] == [cost]
    assert recorded["password"] == REDACTED
    assert set(recorded["deep"].values()) == {REDACTED}


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_a_transaction_is_rejected() -> None:
    with pytest.raises(transaction.TransactionManagementError):
        record(program("test"), "pool.change", "pool", "pool-a")
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_event_is_rolled_back_with_its_change() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        record(program("test"), "pool.change", "pool", "pool-a")
        raise RuntimeError
    assert not AuditEvent.objects.exists()


def behind_the_edge(*headers: tuple[bytes, bytes]) -> ASGIRequest:
    """Return a request as Django receives it in the running program."""
    scope = {"type": "http", "method": "GET", "path": "/", "headers": list(headers), "query_string": b""}
    scope[SCOPE_KEY] = RequestHead(scope["headers"])
    return ASGIRequest(scope, None)


def test_request_keeps_the_id_of_the_edge() -> None:
    request = behind_the_edge()
    assert request_id_of(request) == request.scope[SCOPE_KEY].request_id
    assert request_id_of(behind_the_edge((b"x-request-id", b"mine"))) == "mine"


@pytest.mark.parametrize("offered", ["", "a b", "x" * 129, "é", "a\x1b[31m"])
def test_id_with_unsafe_characters_is_replaced(offered: str) -> None:
    request = RequestFactory().get("/", headers={"X-Request-Id": offered})
    assert len(request_id_of(request)) == 36
    assert request_id_of(request) == request_id_of(request)


def test_actor_is_the_signed_in_person() -> None:
    request = RequestFactory().get("/", headers={"X-Request-Id": "r-1"})
    request.user = User(username="ada")
    actor = actor_of(request, CONSOLE)
    assert (actor.name, actor.via, actor.request_id, actor.user) == ("ada", "console", "r-1", request.user)
