"""The console's websocket URLs."""

from __future__ import annotations

from django.urls import path, re_path

from web.live.consumers import FleetConsumer
from web.live.socket_origin import nothing_here

websocket_urlpatterns = [path("ws/fleet", FleetConsumer.as_asgi()), re_path("", nothing_here)]
