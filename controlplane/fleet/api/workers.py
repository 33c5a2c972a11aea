"""Worker management as in SGLang's router and Dynamo's selection service, with an API key of the scope manage.

The paths and answers are theirs (docs/drop-in.md), so they are not below /api/v1 and not in the OpenAPI document.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db.models import Q
from django.http import HttpResponse, JsonResponse
from rest_framework.request import Request

from controlplane.fleet.connect.engine_facts import ConnectRejectedError
from controlplane.fleet.connect.workers import add_worker, remove_worker, worker_row
from controlplane.fleet.engine_addressing import at_url
from controlplane.fleet.engine_url import RejectedUrlError, normal_url
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.visibility import visible_engines
from controlplane.platform.api.views import ApiView
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.role import Role
from gateway.contracts.worker_ids import worker_id

MAX_ID = 2**64


class WorkerRejectedError(Exception):
    """The request is invalid. The message states why."""


class _Workers(ApiView):
    schema = None
    changes_need = Role.ADMIN

    def engines(self) -> list[Engine]:
        """Return the visible engines, by pool and name."""
        return list(visible_engines(self.actor).select_related("pool").order_by("pool__slug", "name"))

    def serving(self) -> list[Engine]:
        """Return the engines that are not drained, or in maintenance after a failed preflight."""
        return [engine for engine in self.engines() if engine.desired_state == DesiredState.READY]

    def added(self, url: Any, worker: dict[str, Any] | None = None) -> list[Engine]:
        """Register a worker; raise WorkerRejectedError."""
        if not isinstance(url, str) or not url:
            raise WorkerRejectedError("Send the worker's url.")
        try:
            return add_worker(url, actor=self.actor, worker=worker)
        except ConnectRejectedError as rejection:
            raise WorkerRejectedError(f"{rejection.sentence} {rejection.remedy}") from None
        except RejectedUrlError as error:
            raise WorkerRejectedError(f"{error}.") from None
        except InvalidFieldsError as error:
            raise WorkerRejectedError(error.problems[0].message) from None

    def removed(self, name: str) -> str:
        """Remove the worker of a URL, engine id, or number; return how it went. Raises WorkerRejectedError."""
        try:
            url = normal_url(name) if "://" in name else ""
        except RejectedUrlError as error:
            raise WorkerRejectedError(f"{error}.") from None
        named = at_url(url) if url else Q(engine_id=name)
        engines = list(visible_engines(self.actor).select_related("pool").filter(named))
        if not engines and name.isascii() and name.isdecimal() and len(name) <= 20:
            engines = [item for item in self.engines() if worker_id(item.engine_id, item.name) == int(name)]
        if not engines:
            raise WorkerRejectedError(f"Worker {name} is not registered.")
        gone = remove_worker(engines, actor=self.actor)
        return f"Successfully removed worker: {name}" + ("" if gone else "; it finishes its requests")


class AddWorker(_Workers):
    """`POST /add_worker?url=`."""

    def post(self, request: Request) -> HttpResponse:
        """Register an engine by its URL."""
        url = request.query_params.get("url", "")

        def add() -> str:
            self.added(url)
            return f"Successfully added worker: {url}"

        return _as_text(add)


class RemoveWorker(_Workers):
    """`POST /remove_worker?url=`."""

    def post(self, request: Request) -> HttpResponse:
        """Drain an engine, and delete it once it is empty."""
        return _as_text(lambda: self.removed(request.query_params.get("url", "")))


class ListWorkers(_Workers):
    """`GET /list_workers`."""

    def get(self, _request: Request) -> HttpResponse:
        """Return the URLs of the serving engines."""
        urls = dict.fromkeys(engine.url.partition("#")[0] for engine in self.serving())
        return JsonResponse({"urls": list(urls)})


class WorkerLoads(_Workers):
    """`GET /get_loads`."""

    def get(self, _request: Request) -> HttpResponse:
        """Return the requests at each engine; -1: unknown."""
        rows = [worker_row(engine, time.time()) for engine in self.serving()]
        return JsonResponse({"workers": [{"worker": row["url"], "load": row["load"]} for row in rows]})


class WorkerList(_Workers):
    """`/workers`."""

    def get(self, _request: Request) -> HttpResponse:
        """List the serving engines with the fields of both products."""
        engines = self.serving()
        rows = [worker_row(engine, time.time()) for engine in engines]
        counts = {kind: sum(row["worker_type"] == kind for row in rows) for kind in ("prefill", "decode", "regular")}
        stats = {f"{kind}_count": number for kind, number in counts.items()}
        return JsonResponse({"workers": rows, "total": len(rows), "stats": stats})

    def post(self, request: Request) -> HttpResponse:
        """Register an engine: `url` as SGLang sends it, or `endpoint` and `worker_id` as Dynamo does."""
        body = request.data if isinstance(request.data, dict) else {}
        of_dynamo = "endpoint" in body
        number = body.get("worker_id", 0)
        try:
            if type(number) is not int or not 0 <= number < MAX_ID:
                raise WorkerRejectedError("Send worker_id as a number.")
            engines = self.added(body.get("endpoint") if of_dynamo else body.get("url"), body if of_dynamo else None)
        except WorkerRejectedError as error:
            return JsonResponse({"error": str(error), "code": "ADD_WORKER_FAILED"}, status=400)
        row = worker_row(engines[0], time.time())
        if of_dynamo:
            return JsonResponse(row, status=201)
        message = f"Successfully added worker: {row['url']}"
        return JsonResponse({"success": True, "message": message, "worker": row})


class OneWorker(_Workers):
    """`/workers/{url or id}`."""

    def get(self, _request: Request, name: str) -> HttpResponse:
        """Return one engine."""
        rows = [worker_row(engine, time.time()) for engine in self.engines()]
        shown = [row for row in rows if name in (row["id"], row["url"], str(row["worker_id"]))]
        if not shown:
            return JsonResponse({"error": f"Worker {name} not found", "code": "WORKER_NOT_FOUND"}, status=404)
        return JsonResponse(shown[0])

    def delete(self, _request: Request, name: str) -> HttpResponse:
        """Drain an engine, and delete it once it is empty."""
        try:
            return JsonResponse({"success": True, "message": self.removed(name)})
        except WorkerRejectedError as error:
            return JsonResponse({"error": str(error), "code": "REMOVE_WORKER_FAILED"}, status=400)


def _as_text(work: Callable[[], str]) -> HttpResponse:
    try:
        return HttpResponse(work(), content_type="text/plain; charset=utf-8")
    except WorkerRejectedError as error:
        return HttpResponse(str(error), content_type="text/plain; charset=utf-8", status=400)
