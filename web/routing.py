"""Websocket addresses of the console."""

from __future__ import annotations

from django.urls import path

from web.consumers import FleetConsumer

websocket_urlpatterns = [path("ws/fleet", FleetConsumer.as_asgi())]
