"""Determines the actor of an HTTP request."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.models import User
from django.http import HttpRequest

from controlplane.platform.actor import Actor, person
from gateway.server.http.request_head import RequestHead, head_of


def actor_of(request: HttpRequest, via: str) -> Actor:
    """Return the signed-in person as the actor of this request. For pages that require a login."""
    return person(cast("User", request.user), via=via, request_id=request_id_of(request))


def request_id_of(request: HttpRequest) -> str:
    """Return the request id from the edge or, without an edge, the client's id or a new one."""
    scope = getattr(request, "scope", None)
    if scope is not None:
        return head_of(scope).request_id
    kept: str | None = request.META.get("headway.request_id")
    if kept is None:
        offered = request.headers.get("X-Request-Id")
        head = RequestHead([(b"x-request-id", offered.encode("latin-1", "replace"))] if offered else [])
        kept = request.META["headway.request_id"] = head.request_id
    return kept
