"""Addresses that Django answers; the gateway's are dispatched before Django sees them (controlplane.asgi)."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("api/", include("controlplane.api.urls")), path("", include("web.urls"))]

handler400 = "web.error_pages.bad_request"
handler403 = "web.error_pages.forbidden"
handler404 = "web.error_pages.not_found"
handler500 = "web.error_pages.server_error"
