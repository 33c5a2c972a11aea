"""Errors of the management API as problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from rest_framework.renderers import JSONRenderer
from typing_extensions import override

from controlplane.platform.field_problems import FieldProblem

MEDIA_TYPE = "application/problem+json"
_TYPES = {
    400: "invalid",
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    409: "conflict",
    412: "stale",
    413: "too-large",
    415: "unsupported-media-type",
    422: "idempotency-key-reused",
    428: "precondition-required",
    429: "too-many-requests",
    500: "internal",
    503: "unavailable",
}


class ProblemError(Exception):
    """An error response. `members` are further members of the problem, `headers` further response headers."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Iterable[FieldProblem] = (),
        *,
        members: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)
        self.members = members or {}
        self.headers = headers or {}

    def body(self, request_id: str) -> dict[str, Any]:
        """Return the members of the problem."""
        return {
            "type": f"urn:headway:problem:{_TYPES.get(self.status, 'error')}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "errors": [{"path": error.path, "message": error.message} for error in self.errors],
            "request_id": request_id,
            **self.members,
        }


PROBLEM = "headway_problem"
"""Attribute of responses that contain a problem."""


class ApiRenderer(JSONRenderer):
    """Renders strict JSON: UTF-8, no NaN, and application/problem+json for errors."""

    charset = None

    @override
    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the response body."""
        response = (renderer_context or {}).get("response")
        if response is not None and getattr(response, PROBLEM, False):
            response["Content-Type"] = MEDIA_TYPE
        return super().render(data, accepted_media_type, renderer_context)
