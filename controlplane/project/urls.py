"""URLs served by Django. The gateway serves its own URLs and relays all others (gateway.standalone)."""

from __future__ import annotations

from django.urls import include, path

from controlplane.fleet.api import workers

OTHER_ROUTERS = [
    path("add_worker", workers.AddWorker.as_view()),
    path("remove_worker", workers.RemoveWorker.as_view()),
    path("list_workers", workers.ListWorkers.as_view()),
    path("get_loads", workers.WorkerLoads.as_view()),
    path("workers", workers.WorkerList.as_view()),
    path("workers/<path:name>", workers.OneWorker.as_view()),
]
"""Paths that clients of SGLang's router and of Dynamo's selection service call."""

urlpatterns = [path("api/", include("controlplane.project.api_urls")), *OTHER_ROUTERS, path("", include("web.urls"))]

handler400 = "web.shell.error_pages.bad_request"
handler403 = "web.shell.error_pages.forbidden"
handler404 = "web.shell.error_pages.missing_page"
handler500 = "web.shell.error_pages.server_error"
