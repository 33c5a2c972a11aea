"""The composition root of the web process: pages, the management API, and websockets behind the gateway's relay."""

from __future__ import annotations

import logging
import os
from typing import cast

import django
from asgiref.sync import sync_to_async
from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from django.apps import apps
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.db import DatabaseError

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
if not apps.ready:
    django.setup(set_prefix=False)

# These need Django to be set up.
from controlplane.automation.observation import fleet_observation
from controlplane.history.cache_locality.intake import cache_locality_intake
from controlplane.platform.api.upload_gate import UploadGate
from controlplane.platform.bus import fleet_keyring
from controlplane.platform.outage.bus_revocations import bus_revocations
from controlplane.project.checks import reject_unsafe
from controlplane.project.unusable_database import reject
from controlplane.publication.snapshot import publish
from controlplane.request_log.recent_decisions import recent_decisions
from controlplane.secret_rotation.own_secrets import answer_questions, session_keyring
from gateway.base.asgi_types import AsgiApp, Receive, Scope, Send
from gateway.server.http.edge import Edge, EdgeSettings
from gateway.server.http.forwarded_client import ForwardedClient
from gateway.server.process.tuning import settle_heap
from web.live.feed import fleet_feed
from web.live.routing import websocket_urlpatterns
from web.live.socket_origin import SameOrigin

logger = logging.getLogger(__name__)


class Web:
    """Dispatches requests to Django and websockets to Channels."""

    def __init__(self, pages: AsgiApp, sockets: AsgiApp) -> None:
        self._pages = pages
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await (self._pages if scope["type"] == "http" else self._sockets)(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await sync_to_async(_start)()
        except Exception as error:
            # The edge of the process: the server must receive the reason why it cannot start.
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _start() -> None:
    reject_unsafe()
    reject()
    try:
        publish()
    except DatabaseError as error:
        # Pages report it until the database is back; the bus has the last snapshot.
        logger.warning("the database cannot be read", extra={"error": str(error)})
    # What pages show of the live fleet is followed from the start, not from the first page on.
    for subscribe in (fleet_feed, fleet_observation, cache_locality_intake, recent_decisions, bus_revocations):
        subscribe()
    answer_questions("web", [fleet_keyring(), session_keyring()])
    settle_heap()


_PAGES = UploadGate(cast("AsgiApp", ASGIHandler()), settings.LONG_BODIES)
_SOCKETS = SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), settings.CSRF_TRUSTED_ORIGINS)
_EDGE = EdgeSettings(
    allowed_hosts=tuple(settings.ALLOWED_HOSTS),
    body_limit=settings.MAX_BODY_BYTES,
    proxy_body_limit=settings.PROXY_BODY_BYTES,
    long_bodies=settings.LONG_BODIES,
)
application = ForwardedClient(Edge(Web(_PAGES, _SOCKETS), _EDGE))
