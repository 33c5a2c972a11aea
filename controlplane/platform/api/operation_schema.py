"""Describes views in OpenAPI from their declarations."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.authentication import SessionScheme
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, inline_serializer
from rest_framework import serializers
from typing_extensions import override

from controlplane.platform.api.problem import MEDIA_TYPE

_CHANGES = ("POST", "PUT", "PATCH", "DELETE")
_PLAIN = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}
_COUNTED = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
_IDS: dict[str, dict[str, Any]] = {
    "slug": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    "engine_id": _PLAIN,
    "key_id": _PLAIN,
    "decision_id": _PLAIN,
    "number": _COUNTED,
    "run": _COUNTED,
    "recording": _COUNTED,
    "whatif": _COUNTED,
    "shadow": _COUNTED,
    "canary": _PLAIN,
    "event": _COUNTED,
}
_GUARDED = ("PUT", "PATCH", "DELETE")


class KeyScheme(OpenApiAuthenticationExtension):
    """OpenAPI bearer scheme for API keys."""

    target_class = "controlplane.platform.api.key_authentication.KeyAuthentication"
    name = "apiKey"

    @override
    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """Return the scheme."""
        return {"type": "http", "scheme": "bearer", "description": "An API key, hw_…"}


class FieldProblemShape(serializers.Serializer):
    """One problem with a field."""

    path = serializers.CharField(allow_blank=True)
    message = serializers.CharField()


class ProblemShape(serializers.Serializer):
    """An error (RFC 9457). With status 412, `current` is the current object."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    errors = FieldProblemShape(many=True)
    request_id = serializers.CharField()
    current = serializers.DictField(required=False, allow_null=True)


class OperationSchema(AutoSchema):
    """Describes a view's method as one OpenAPI operation."""

    @override
    def get_tags(self) -> list[str]:
        """Group operations by noun."""
        return [self.view.noun or "schema"]

    @override
    def get_operation_id(self) -> str:
        """Name the operation after its method and view. Each endpoint has its own view."""
        return f"{self.method.lower()}{type(self.view).__name__.removesuffix('View')}"

    @override
    def get_serializer_name(self, serializer: serializers.Serializer, direction: Literal["request", "response"]) -> str:
        """Name components after their nouns."""
        return str(super().get_serializer_name(serializer, direction)).removesuffix("Shape")

    @override
    def get_description(self) -> str:
        """Return the view's text for the method or, without one, the method's docstring."""
        return self.view.says.get(self.method) or str(super().get_description())

    @override
    def get_request_serializer(self) -> Any:
        """Return the serializer of the request body."""
        return self.view.bodies.get(self.method)

    @override
    def get_override_parameters(self) -> list[Any]:
        """Return the parameters that are not in the path."""
        own = self.view.parameters
        return [*self._path_parameters(), *own, *self._list_parameters(), *self._header_parameters()]

    @override
    def get_response_serializers(self) -> Any:
        """Return the possible responses."""
        declared = self.view.answers.get(self.method)
        usual = 201 if self.method == "POST" and self.view.listing is not None else 200
        status, shape = declared or (usual, getattr(self.view, "shape", None))
        if declared is None and self.method == "GET" and self.view.listing is not None:
            shape = self._page_shape()
        answers: dict[Any, Any] = {status: shape if shape is not None else OpenApiResponse(description="Done.")}
        if self.method == "POST" and self.view.answers_later:
            answers[202] = shape
        if self.method == "GET" and self.view.has_etag and self.view.listing is None:
            answers[304] = OpenApiResponse(description="Not modified.")
        for code in self._error_statuses():
            answers[code, MEDIA_TYPE] = ProblemShape
        return answers

    def _page_shape(self) -> Any:
        shape = self.view.shape
        fields = {
            "results": shape(many=True),
            "next": serializers.CharField(allow_null=True, help_text="URL of the next page."),
        }
        return inline_serializer(name=f"{shape.__name__.removesuffix('Shape')}Page", fields=fields)

    def _error_statuses(self) -> list[int]:
        codes = [401, 403, 406]
        if self.method == "GET" and (self.view.listing is not None or self.view.parameters):
            codes.append(400)
        if "{" in self.path:
            codes.append(404)
        if self.method in _CHANGES:
            codes += [400, 413, 415]
        if self.method in _CHANGES and not self.view.only_asks:
            codes.append(409)
        if self.method == "POST" and not self.view.only_asks:
            codes += [412, 422]
        if self.method in _GUARDED:
            codes += [412, 428]
        return sorted(codes)

    def _path_parameters(self) -> list[OpenApiParameter]:
        known = {name: kind for name, kind in _IDS.items() if f"{{{name}}}" in self.path}
        return [OpenApiParameter(name, kind, OpenApiParameter.PATH) for name, kind in known.items()]

    def _list_parameters(self) -> list[OpenApiParameter]:
        listing = self.view.listing
        if self.method != "GET" or listing is None:
            return []
        controls = {
            "limit": ({"type": "integer", "minimum": 1, "maximum": 500, "default": 50}, "Rows of one page."),
            "cursor": ({"type": "string", "maxLength": 2000}, "Cursor of the page, from `next`."),
            "ordering": ({"type": "string", "enum": listing.names(), "default": listing.default}, "Sort order."),
        }
        parameters = [_query(name, dict(rule.schema), rule.sentence) for name, rule in listing.filters.items()]
        return parameters + [_query(name, *control) for name, control in controls.items()]

    def _header_parameters(self) -> list[OpenApiParameter]:
        headers = []
        if self.method == "POST" and not self.view.only_asks:
            headers.append(_header("Idempotency-Key", "Repeating the request with the same key changes nothing."))
        if self.method in _GUARDED:
            headers.append(_header("If-Match", "ETag of the version you read.", required=True))
        if self.method == "DELETE":
            headers.append(_query("why", {"type": "string", "maxLength": 200}, "Reason for the audit."))
        if self.method == "GET" and self.view.has_etag and self.view.listing is None:
            headers.append(_header("If-None-Match", "ETag that the client has; 304 if unchanged."))
        if self.view.has_etag and self.view.listing is None and self.method != "DELETE":
            etag = OpenApiParameter(
                "ETag", str, OpenApiParameter.HEADER, description="Version of the object.", response=[200, 201]
            )
            headers.append(etag)
        return headers


def _query(name: str, schema: dict[str, Any], sentence: str) -> OpenApiParameter:
    return OpenApiParameter(name, schema, OpenApiParameter.QUERY, description=sentence)


def _header(name: str, sentence: str, *, required: bool = False) -> OpenApiParameter:
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, description=sentence, required=required)


SessionScheme.name = "session"
