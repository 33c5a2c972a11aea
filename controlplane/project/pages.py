"""Django's apps for pages and websockets, and the limits of the edge before them."""

from __future__ import annotations

from typing import cast

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

from controlplane.platform.api.upload_gate import UploadGate
from gateway.base.asgi_types import AsgiApp
from gateway.server.http.edge import EdgeSettings
from web.live.routing import websocket_urlpatterns
from web.live.socket_origin import SameOrigin


def pages() -> AsgiApp:
    """Return the app for pages and the management API."""
    return UploadGate(cast("AsgiApp", ASGIHandler()), settings.LONG_BODIES)


def sockets() -> AsgiApp:
    """Return the app for websockets."""
    return SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), settings.CSRF_TRUSTED_ORIGINS)


def edge_settings() -> EdgeSettings:
    """Return the accepted hosts and the maximum body lengths."""
    return EdgeSettings(
        allowed_hosts=tuple(settings.ALLOWED_HOSTS),
        body_limit=settings.MAX_BODY_BYTES,
        proxy_body_limit=settings.PROXY_BODY_BYTES,
        long_bodies=settings.LONG_BODIES,
    )
