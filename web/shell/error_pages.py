"""Error pages in the console's layout and theme, with a link back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import render

from controlplane.platform.api.error_answers import database_away
from controlplane.platform.api.problem import MEDIA_TYPE
from controlplane.platform.environment import PROGRAM
from controlplane.platform.format import byte_size
from controlplane.platform.outage.unwritable import Cause, cause_of, database_writes
from controlplane.platform.request_actor import request_id_of
from gateway.server.http.openai_error import error_body
from kvstore.node.disk_space import space_of
from web.shell.frame import ITEMS, shell_context
from web.shell.no_role import admin_names

Handler = Callable[[HttpRequest], HttpResponse]
_API = "/api/"
_RETRY_S = 2
_NO_PATH = (
    "Nothing is at this path. Models are called below /v1/, such as /v1/chat/completions, and listed at /v1/models. "
    "The management API is below /api/v1/; /api/schema/ describes both."
)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return a 400."""
    return _page(request, 400, "Invalid request", "The address or the data sent is malformed.")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return a 403."""
    sentence = str(exception) or "This page requires a role that you do not have."
    if hasattr(request, "user") and request.user.is_authenticated and (names := admin_names()):
        sentence = f"{sentence} These people can grant a role, under Access, People: {', '.join(names)}."
    return _page(request, 403, "Not allowed for your role", sentence)


def missing_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return a 404; API clients get JSON in the shape of the inference API."""
    if request.method not in ("GET", "HEAD") or "text/html" not in request.headers.get("accept", ""):
        return HttpResponse(error_body(404, _NO_PATH, "not_found"), content_type="application/json", status=404)
    sentence = "This page does not exist, was deleted, or belongs to a pool that you cannot see."
    return _page(request, 404, "Not found", sentence)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return a 500, or a 503 if the database is unavailable. Uses no session and no rows, which could fail too."""
    error = sys.exc_info()[1]
    if error is not None and (cause := cause_of(error)) is not None:
        database_writes().failed(error)
        return _database_away(request, cause)
    sentence = "The log has the cause under this request id. Requests to engines are not affected."
    return render(request, "shell/error_alone.html", _words(request, 500, "Internal error", sentence), status=500)


_AWAY = (
    "Requests are still routed: gateways need no database. Changes are rejected until it is back. Check the server at "
    f"DATABASE_URL, and run {PROGRAM} doctor. No restart is needed."
)
_BUSY = (
    "Other writes blocked it for too long. Nothing was changed; try again. Requests are still routed: gateways need "
    "no database. If this happens often, the machine lacks CPU or disk throughput: use PostgreSQL (DATABASE_URL)."
)


_SERVES_ON = "Requests are still routed: gateways need no database. Nothing was changed, and no restart is needed. "
_REVOKE = (
    f"To revoke an API key now, use its page under Access, or {PROGRAM} revoke_key; both work without the database."
)
_SAID = {
    Cause.AWAY: ("The database does not answer", _AWAY),
    Cause.BUSY: ("The database is busy", _BUSY),
    Cause.FULL: (
        "The database’s disk is full",
        f"{_SERVES_ON}Free space on its file system: the state directory’s, or the database server’s. {PROGRAM} doctor "
        f"reports the free space and what uses the rest. {_REVOKE}",
    ),
    Cause.READ_ONLY: (
        "The database is read-only",
        f"{_SERVES_ON}Make it writable, or set DATABASE_URL to the primary server. {_REVOKE}",
    ),
}


def _free_words() -> str:
    """Return the free space on the database's disk, if the disk is local."""
    if connection.vendor != "sqlite":
        return ""
    try:
        space = space_of(settings.STATE_DIR)
    except OSError:
        return ""
    return (
        f" The state directory’s file system has {byte_size(space.free_bytes)} of {byte_size(space.total_bytes)} free."
    )


def _database_away(request: HttpRequest, cause: Cause) -> HttpResponse:
    """Return a 503 with a remedy: a problem document for the API; a page requested by GET reloads itself."""
    if request.path.startswith(_API):
        problem = database_away(cause)
        body = json.dumps(problem.body(request_id_of(request)))
        answer = HttpResponse(body, content_type=MEDIA_TYPE, status=problem.status, headers=problem.headers)
    else:
        title, sentence = _SAID[cause]
        words = _words(request, 503, title, sentence + (_free_words() if cause == Cause.FULL else ""))
        answer = render(request, "shell/error_alone.html", words, status=503)
        if request.method == "GET":
            answer["Refresh"] = str(_RETRY_S)
        answer["Retry-After"] = str(_RETRY_S)
    answer["Cache-Control"] = "no-store"
    return answer


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return a 403 for a form without a valid token."""
    sentence = "The form was open for too long or came from another site. Go back, reload the page, and send it again."
    return _page(request, 403, "This form has expired", sentence)


def show_wrong_methods(get_response: Handler) -> Handler:
    """Middleware that shows a page for a GET of a URL that accepts only forms."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if not isinstance(response, HttpResponseNotAllowed) or request.path.startswith(_API):
            return response
        sentence = "This address accepts forms only. Open the page with the form."
        page = _page(request, 405, "No page at this address", sentence)
        page["Allow"] = response["Allow"]
        return page

    return respond


def _page(request: HttpRequest, status: int, title: str, sentence: str) -> HttpResponse:
    # A request may fail in middleware that runs before the user is known.
    signed_in = hasattr(request, "user") and request.user.is_authenticated
    template = "shell/error.html" if signed_in else "shell/error_alone.html"
    return render(request, template, _words(request, status, title, sentence), status=status)


def _words(request: HttpRequest, status: int, title: str, sentence: str) -> dict[str, object]:
    words = {"status": status, "title": title, "sentence": sentence, "back": _nearest(request.path)}
    return shell_context(request, page=title, **words)


def _nearest(path: str) -> dict[str, str]:
    """Return the page that the URL belongs to, with its name and address; Fleet if there is none."""
    pages = {item.address: item.name for item in ITEMS}
    pages |= {address: name for item in ITEMS for _, name, address in item.tabs if address != item.address}
    address = max((address for address in pages if f"{path}/".startswith(f"{address}/")), key=len, default="/")
    return {"name": pages[address], "address": address}
