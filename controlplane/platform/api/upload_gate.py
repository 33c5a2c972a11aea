"""Accepts long bodies only from callers with write permission, because Django reads a body before authentication."""

from __future__ import annotations

import io
from collections.abc import Collection
from importlib import import_module
from typing import cast

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from controlplane.platform.actor import API, machine
from controlplane.platform.api.key_authentication import KeyAuthentication
from controlplane.platform.request_actor import actor_of
from controlplane.platform.role import Role
from controlplane.platform.roles import may_somewhere
from gateway.base.asgi_types import AsgiApp, Message, Receive, Scope, Send


class UploadGate:
    """Wraps Django, and removes the body of requests to `long_bodies` paths unless the caller is an operator.

    Django then responds with the authentication or permission error.
    """

    def __init__(self, pages: AsgiApp, long_bodies: Collection[str]) -> None:
        self._pages = pages
        self._long_bodies = long_bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if scope["path"] in self._long_bodies and not await database_sync_to_async(_may_upload)(scope):
            receive = _without_body(receive)
        await self._pages(scope, receive, send)


def _may_upload(scope: Scope) -> bool:
    """Return whether the headers alone authenticate an operator."""
    request = ASGIRequest(scope, io.BytesIO())
    try:
        keyed = KeyAuthentication().authenticate(cast("Request", request))
    except APIException:
        return False
    if keyed is not None:
        return may_somewhere(machine(keyed[1]), Role.OPERATOR)
    # Django's middleware has not run yet, and must not: it runs once the whole body is read.
    engine = import_module(settings.SESSION_ENGINE)
    request.session = engine.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    request.user = get_user(request)
    return may_somewhere(actor_of(request, API), Role.OPERATOR)


def _without_body(receive: Receive) -> Receive:
    sent = False

    async def receive_head() -> Message:
        nonlocal sent
        if sent:
            # An app that has its body receives only the end of the connection.
            while (message := await receive())["type"] != "http.disconnect":
                pass
            return message
        sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive_head
