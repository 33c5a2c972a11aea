"""Addresses that Django answers; the gateway's are dispatched before Django sees them (controlplane.asgi)."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("api/", include("controlplane.api.urls")), path("", include("web.urls"))]
