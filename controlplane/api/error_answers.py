"""Turns whatever a view raises into the one problem that says what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.core.exceptions import BadRequest, ObjectDoesNotExist, PermissionDenied, SuspiciousOperation
from django.db import OperationalError
from django.http import Http404, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from controlplane.api.etags import etag_of
from controlplane.api.problem import ProblemError
from controlplane.api.rendering import PROBLEM
from controlplane.request_actor import request_id_of
from controlplane.services.canary_end import CanaryOverError
from controlplane.services.engine_lifecycle import EngineNotEmptyError
from controlplane.services.engine_url import RefusedUrlError
from controlplane.services.field_problems import FieldProblem, InvalidFieldsError
from controlplane.services.policies import StalePolicyError
from controlplane.services.policy_approvals import CannotApproveError, NotApprovedError
from controlplane.services.policy_problems import InvalidPolicyError
from controlplane.services.recorded_change import InUseError
from controlplane.services.revisions import StaleRevisionError
from controlplane.services.roles import NotAllowedError
from controlplane.services.scheduled_publishes import ScheduleError
from gateway.http.json_body import BadBodyError

logger = logging.getLogger(__name__)

_WRONG_FIELDS = "Some values cannot be used; each is listed under errors."


def answer_error(error: Exception, context: dict[str, Any]) -> Response:
    """Return the answer to an exception; what nobody foresaw is logged by type and place and answered 500."""
    request, view = context["request"], context["view"]
    set_rollback()
    problem = _problem(error, view)
    if problem is None:
        logger.error("the API failed", exc_info=error, extra={"path": request.path, "error": type(error).__name__})
        problem = ProblemError(500, "Switchyard failed; the error is in its log under this request_id.")
    response = Response(problem.body(request_id_of(request._request)), status=problem.status, headers=problem.headers)
    setattr(response, PROBLEM, True)
    return response


def database_away() -> ProblemError:
    """Return the answer while the database does not answer."""
    return ProblemError(503, "The database does not answer; try again in a moment.", headers={"Retry-After": "2"})


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
        headers["Retry-After"] = str(int(wait_s) + 1)
    if isinstance(error, exceptions.ValidationError):
        return ProblemError(400, _WRONG_FIELDS, _flattened(error.detail, ""), headers=headers)
    detail = str(error.detail)
    if isinstance(error, exceptions.NotAuthenticated):
        detail = "Sign in, or send 'Authorization: Bearer sy_…' with an API key that has the scope manage."
    return ProblemError(error.status_code, detail, headers=headers)


def _flattened(detail: Any, path: str) -> list[FieldProblem]:
    if isinstance(detail, dict):
        return [
            each
            for name, inner in detail.items()
            for each in _flattened(inner, path if name == "non_field_errors" else f"{path}.{name}".lstrip("."))
        ]
    if isinstance(detail, list):
        nested = any(isinstance(inner, dict | list) for inner in detail)
        return [
            each
            for number, inner in enumerate(detail)
            for each in _flattened(inner, f"{path}[{number}]" if nested else path)
        ]
    return [FieldProblem(path, str(detail))]


def _stale(error: StaleRevisionError, view: Any) -> ProblemError:
    members = {"current": view.represented(error.current)}
    return ProblemError(412, f"{error}.", members=members, headers={"ETag": etag_of(error.current)})


def _stale_policy(error: StalePolicyError, view: Any) -> ProblemError:
    from controlplane.api.shapes.policy import PolicyVersionShape

    live = None if error.live is None else PolicyVersionShape(error.live).data
    return ProblemError(412, f"{error}.", members={"current": live})


def _body(error: BadBodyError, _view: Any) -> ProblemError:
    return ProblemError(400, error.message, [FieldProblem("", error.message)])


LIFECYCLE_ERRORS = (NotApprovedError, CannotApproveError, ScheduleError)

_MAKERS: tuple[tuple[tuple[type[Exception], ...], Callable[[Any, Any], ProblemError]], ...] = (
    ((NotAllowedError, PermissionDenied), lambda error, _: ProblemError(403, str(error) or "This is not allowed.")),
    ((InvalidFieldsError,), lambda error, _: ProblemError(400, _WRONG_FIELDS, error.problems)),
    ((InvalidPolicyError,), lambda error, _: ProblemError(400, "The document is no policy.", error.found)),
    (
        (RefusedUrlError,),
        lambda error, _: ProblemError(400, _WRONG_FIELDS, [FieldProblem(error.field, f"{error}.")]),
    ),
    ((StaleRevisionError,), _stale),
    ((StalePolicyError,), _stale_policy),
    (
        (InUseError, EngineNotEmptyError, CanaryOverError, *LIFECYCLE_ERRORS),
        lambda error, _: ProblemError(409, str(error)),
    ),
    ((ObjectDoesNotExist, Http404), lambda _error, _: ProblemError(404, "There is nothing at this address.")),
    ((BadBodyError,), _body),
    (
        (BadRequest, SuspiciousOperation, MultiPartParserError, UnreadablePostError),
        lambda _error, _: ProblemError(400, "The request cannot be read; send JSON."),
    ),
    ((OperationalError,), lambda _error, _: database_away()),
)
