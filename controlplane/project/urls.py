"""URLs served by Django. The gateway serves its own URLs and relays all others (gateway.standalone)."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("api/", include("controlplane.project.api_urls")), path("", include("web.urls"))]

handler400 = "web.shell.error_pages.bad_request"
handler403 = "web.shell.error_pages.forbidden"
handler404 = "web.shell.error_pages.missing_page"
handler500 = "web.shell.error_pages.server_error"
