"""Converts every exception in a view into a problem document with a remedy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.core.exceptions import BadRequest, ObjectDoesNotExist, PermissionDenied, SuspiciousOperation
from django.http import Http404, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from controlplane.platform.api.etags import etag_of
from controlplane.platform.api.problem import PROBLEM, ProblemError
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import FieldProblem, InvalidInputError
from controlplane.platform.outage.unwritable import CANNOT_WRITE, Cause, cause_of, database_writes
from controlplane.platform.request_actor import request_id_of
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import NotAllowedError
from gateway.server.http.json_body import BadBodyError

logger = logging.getLogger(__name__)

_WRONG_FIELDS = "Some values are invalid; see errors."


def answer_error(error: Exception, context: dict[str, Any]) -> Response:
    """Return the response to an exception. An unexpected one is logged by type and location, and answered with 500."""
    request, view = context["request"], context["view"]
    set_rollback()
    problem = _problem(error, view)
    if problem is None:
        logger.error("the API failed", exc_info=error, extra={"path": request.path, "error": type(error).__name__})
        problem = ProblemError(500, "Internal error; find it in the log by this request_id.")
    response = Response(problem.body(request_id_of(request._request)), status=problem.status, headers=problem.headers)
    setattr(response, PROBLEM, True)
    return response


def answer_with(kind: type[Exception], make: Callable[[Any, Any], ProblemError]) -> None:
    """Register a feature's response to an error. `make` receives the error and the view."""
    _MAKERS.append(((kind,), make))


_UNWRITABLE = {
    Cause.FULL: "The database's disk is full; nothing was changed. Free space; no restart is needed.",
    Cause.READ_ONLY: "The database is read-only; nothing was changed. Make it writable, or name its primary server.",
    Cause.BUSY: "Other writes hold the database; nothing was changed. Retry.",
    Cause.AWAY: "The database does not answer; retry.",
}


def database_away(cause: Cause = Cause.AWAY) -> ProblemError:
    """Return the response for a database that is unavailable or not writable."""
    return ProblemError(503, _UNWRITABLE[cause], headers={"Retry-After": "2"})


def _database_failed(error: Exception, _view: Any) -> ProblemError | None:
    cause = cause_of(error)
    if cause is not None:
        database_writes().failed(error)
    # Without a cause, such as for a missing column, the fault is ours: 500, since a retry would not help.
    return None if cause is None else database_away(cause)


def _problem(error: Exception, view: Any) -> ProblemError | None:
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, exceptions.APIException):
        return _framework_problem(error)
    for kinds, make in _MAKERS:
        if isinstance(error, kinds):
            return make(error, view)
    return None


def _framework_problem(error: exceptions.APIException) -> ProblemError:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if (wait_s := getattr(error, "wait", None)) is not None:
        # Whole seconds, rounded up: a client that waits a fraction less is rejected again.
        headers["Retry-After"] = str(int(wait_s) + 1)
    if isinstance(error, exceptions.ValidationError):
        return ProblemError(400, _WRONG_FIELDS, validation_problems(error.detail), headers=headers)
    detail = str(error.detail)
    if isinstance(error, exceptions.NotAuthenticated):
        detail = "Sign in, or send 'Authorization: Bearer hw_…' with an API key that has the scope manage."
    return ProblemError(error.status_code, detail, headers=headers)


def validation_problems(detail: Any, path: str = "") -> list[FieldProblem]:
    """Return every problem in the detail of a serializer's ValidationError."""
    if isinstance(detail, dict):
        return [
            item
            for name, inner in detail.items()
            for item in validation_problems(inner, path if name == "non_field_errors" else f"{path}.{name}".lstrip("."))
        ]
    if isinstance(detail, list):
        nested = any(isinstance(inner, dict | list) for inner in detail)
        return [
            item
            for number, inner in enumerate(detail)
            for item in validation_problems(inner, f"{path}[{number}]" if nested else path)
        ]
    return [FieldProblem(path, str(detail))]


def _stale(error: StaleRevisionError, view: Any) -> ProblemError:
    members = {"current": view.represented(error.current)}
    return ProblemError(412, f"{error}.", members=members, headers={"ETag": etag_of(error.current)})


def _body(error: BadBodyError, _view: Any) -> ProblemError:
    return ProblemError(400, error.message, [FieldProblem("", error.message)])


_MAKERS: list[tuple[tuple[type[Exception], ...], Callable[[Any, Any], ProblemError | None]]] = [
    ((NotAllowedError, PermissionDenied), lambda error, _: ProblemError(403, str(error) or "Not allowed.")),
    ((InvalidInputError,), lambda error, _: ProblemError(400, error.summary, error.field_problems)),
    ((StaleRevisionError,), _stale),
    ((ConflictError,), lambda error, _: ProblemError(409, str(error))),
    ((ObjectDoesNotExist, Http404), lambda _error, _: ProblemError(404, "Nothing exists at this address.")),
    ((BadBodyError,), _body),
    (
        (BadRequest, SuspiciousOperation, MultiPartParserError, UnreadablePostError),
        lambda _error, _: ProblemError(400, "The request is unreadable; send JSON."),
    ),
    (CANNOT_WRITE, _database_failed),
]
