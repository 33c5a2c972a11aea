"""Generates the only OpenAPI document: the management API from its views' declarations, and the gateway's part."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.generators import SchemaGenerator
from typing_extensions import override

from gateway.api import advisory_api, explain_api, feedback_api
from gateway.api.advisory_api import (
    AdvisoryAnswer,
    AdvisoryBody,
    AdvisoryState,
    TokenAnswer,
    TokenBody,
    WithdrawnAnswer,
)
from gateway.api.feedback_api import Completion
from gateway.api.observe_request import Observation, ObserveAnswer
from gateway.api.route_api import RouteAnswer
from gateway.api.route_request import MAX_BATCH, RouteRequest
from gateway.api.selection_api import BELOW, LIFECYCLE, RESERVATIONS, SELECTING, SelectionRequest
from gateway.app import OBSERVE
from gateway.contracts.explanation import Explanation
from gateway.proxy.model_list import MODELS
from gateway.requests.formats.endpoints import ENDPOINTS, Endpoint
from gateway.server.http.engine_paths import BATCH, ROUTE

Operation = dict[str, Any]

_REF = "#/components/schemas/{name}"
_STRUCTS = (
    *(RouteRequest, RouteAnswer, Completion, Explanation, Observation, ObserveAnswer),
    SelectionRequest,
    *(AdvisoryBody, AdvisoryAnswer, AdvisoryState, TokenBody, TokenAnswer, WithdrawnAnswer),
)
_KEY: list[dict[str, list[str]]] = [{"apiKey": []}]
_OBSERVES = "Report requests to an observe-only pool: one observation, or one per line."
_HANDED_OVER = "Report that the prefill leg of a pair is done."
_ADVISES = "Announce that a session will send a request soon."
_TOKENS = "Get a token for one session's advisories."
_SELECTS = "Choose an engine and reserve it, in the form of Dynamo's selection service."
_RESERVES = "Confirm a selection."
_REPORTS = "Report the progress of a selection."
_EXPLAINS = "Explains a decision; 403 if tenants share caches and the key lacks the scope manage."


def gateway_part() -> tuple[dict[str, dict[str, Operation]], dict[str, Any]]:
    """Return paths and component schemas of the decision API, the proxy, and the health endpoints."""
    schemas: dict[str, Any]
    _, schemas = msgspec.json.schema_components(_STRUCTS, ref_template=_REF)
    return _paths(), {**schemas, "GatewayError": _ERROR, "Feedback": _FEEDBACK}


def _paths() -> dict[str, dict[str, Operation]]:
    feedback, advisory = f"{feedback_api.PREFIX}{{id}}/", advisory_api.PREFIX + "{id}"
    feedback_body, completion = _ref("Feedback"), _ref("Completion")
    paths = {
        ROUTE: {"post": _operation("route", _ROUTE, _ref("RouteRequest"), _ref("RouteAnswer"))},
        BATCH: {"post": _operation("routeBatch", "Choose engines for several requests.", _BATCH, _DECISIONS)},
        OBSERVE: {"post": _operation("observe", _OBSERVES, _ref("Observation"), _ref("ObserveAnswer"))},
        feedback + "handed_over": {
            "post": _operation("handedOver", _HANDED_OVER, completion, feedback_body, body_needed=False)
        },
        feedback + "first_token": {"post": _operation("firstToken", "Report the first token.", None, feedback_body)},
        feedback + "complete": {
            "post": _operation("complete", "Report completion.", completion, feedback_body, body_needed=False)
        },
        feedback + "fail": {"post": _operation("fail", "Report failure.", None, feedback_body)},
        feedback + "cancel": {"post": _operation("cancel", "Report a cancellation.", None, feedback_body)},
        explain_api.PREFIX + "{id}": {"get": _operation("explain", _EXPLAINS, None, _ref("Explanation"))},
        advisory_api.ADVISORIES: {"post": _operation("advise", _ADVISES, _ADVICE, _ADVISED, status=202)},
        advisory_api.TOKENS: {
            "post": _operation("advisoryToken", _TOKENS, _ref("TokenBody"), _ref("TokenAnswer"), status=201)
        },
        advisory: {
            "get": _operation("advisory", "Get a session's advisory.", None, _ref("AdvisoryState")),
            "delete": _operation("withdrawAdvisory", "Withdraw a session's advisory.", None, _ref("WithdrawnAnswer")),
        },
        **_selection(),
        **{item.path: {"post": _inference(item)} for item in ENDPOINTS},
        MODELS: {"get": _operation("models", "List served models.", None, _OPENAI)},
        MODELS + "/{id}": {"get": _operation("model", "Get one served model.", None, _OPENAI)},
        "/live": {"get": _open("live", "Liveness of the gateway.")},
        "/ready": {"get": _open("ready", "Readiness of the gateway; 503 gives the reason.")},
        "/health": {"get": _open("health", "Readiness at the path used by vLLM and SGLang.")},
        "/metrics": {"get": _open("metrics", "Prometheus metrics.", "text/plain")},
    }
    paths[ROUTE]["post"]["parameters"] = [_NO_WAIT, *map(_of_a_proxy, _OF_PROXIES)]
    for path, operations in paths.items():
        if "{id}" in path:
            for operation in operations.values():
                operation["parameters"] = [_ID]
    return paths


def _selection() -> dict[str, dict[str, Operation]]:
    """Return the paths of Dynamo's selection service."""
    select = _ref("SelectionRequest")
    return {
        **{path: {"post": _operation(_name(path), _SELECTS, select, _OF_DYNAMO)} for path in SELECTING},
        RESERVATIONS: {"post": _operation("reserve", _RESERVES, _RESERVATION, _OF_DYNAMO, status=201)},
        BELOW + "{id}": {"delete": _operation("free", "End a selection's reservation.", None, _OF_DYNAMO)},
        **{
            f"{BELOW}{{id}}/{verb}": {"post": _operation(verb, _REPORTS, _OF_DYNAMO, _OF_DYNAMO, body_needed=False)}
            for verb in LIFECYCLE
        },
    }


def _of_a_proxy(name: str) -> Operation:
    text = f"{_OF_PROXIES[name]} See docs/requests.md, which lists the client's own headers that proxies forward."
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}


def _inference(endpoint: Endpoint) -> Operation:
    operation = _operation(_name(endpoint.path), endpoint.summary, _OPENAI, _OPENAI)
    if endpoint.is_form:
        operation["requestBody"] = {"required": True, **_content(_AUDIO, "multipart/form-data")}
        content = operation["responses"]["200"]["content"]
        content |= {"text/plain": {"schema": {"type": "string"}}, "text/event-stream": {"schema": {}}}
    return operation


def _name(path: str) -> str:
    return path.strip("/").replace("/", "_")


def _operation(
    name: str, sentence: str, body: Any, answer: Any, *, body_needed: bool = True, status: int = 200
) -> Operation:
    operation: Operation = {
        "operationId": name,
        "description": sentence,
        "tags": ["inference" if answer is _OPENAI else "routing"],
        "security": _KEY,
        "responses": {
            str(status): {"description": "The answer.", **_content(answer)},
            "default": {"description": "Says what to do.", **_content(_ref("GatewayError"))},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": body_needed, **_content(body)}
    return operation


def _open(name: str, sentence: str, media_type: str = "application/json") -> Operation:
    answer = {"type": "string"} if media_type == "text/plain" else {"type": "object"}
    return {
        "operationId": name,
        "description": sentence,
        "tags": ["health"],
        "security": [{}],
        "responses": {
            "200": {"description": "Yes.", **_content(answer, media_type)},
            "default": {"description": "Not ready, with the reason.", **_content(_ref("GatewayError"))},
        },
    }


def _content(schema: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(name=name)}


def _object(named: dict[str, str] | None = None, /, **members: Any) -> dict[str, Any]:
    """Return the schema of an object whose members are all required."""
    return {"type": "object", **(named or {}), "required": list(members), "properties": members}


def _list(of: Any, at_most: int) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "maxItems": at_most, "items": of}


_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 256}}
_ROUTE = "Choose an engine for one request. The header X-Original-URI names the endpoint of the body."
_NO_WAIT = {
    "name": "wait",
    "in": "query",
    "description": "false: as in the body, for proxies that pass on a client's body as it came.",
    "schema": {"type": "string", "enum": ["false"]},
}
_OF_PROXIES = {
    "X-Headway-Client-Authorization": "Authorization of the proxy's client; needs the scope forward.",
    "X-Headway-Client-Request-Id": "X-Request-Id of the proxy's client.",
    "X-Headway-Door": "The proxy: nginx, haproxy, envoy, or client.",
}
_ERROR = _object(
    {"title": "GatewayError", "description": "An error in OpenAI's shape."},
    error={
        "type": "object",
        "required": ["message", "type", "code"],
        "properties": {
            "message": {"type": "string"},
            "type": {"type": "string"},
            "code": {"type": ["string", "integer"], "description": "A number if the engine reported it."},
            "param": {"type": ["string", "null"]},
        },
    },
)
_FEEDBACK = _object({"title": "Feedback"}, decision_id={"type": "string"}, outcome={"type": "string"})
_OPENAI = {"type": "object", "additionalProperties": True, "description": "As OpenAI documents it."}
_OF_DYNAMO = {"type": "object", "additionalProperties": True, "description": "As Dynamo documents it."}
_RESERVATION = {
    "type": "object",
    "required": ["selection_id"],
    "properties": {"selection_id": {"type": "string", "minLength": 1, "maxLength": 128}},
}
_AUDIO = {
    "type": "object",
    "required": ["file", "model"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "model": {"type": "string"},
        "language": {"type": "string"},
        "prompt": {"type": "string"},
        "response_format": {"type": "string", "enum": ["json", "text", "srt", "vtt", "verbose_json"]},
        "stream": {"type": "boolean"},
        "temperature": {"type": "number"},
    },
}
_ADVICES = _list(_ref("AdvisoryBody"), advisory_api.MAX_BATCH)
_ADVICE = {"anyOf": [_ref("AdvisoryBody"), _object(advisories=_ADVICES)]}
_ADVISED = {"anyOf": [_ref("AdvisoryAnswer"), _object(advisories={"type": "array", "items": _ref("AdvisoryAnswer")})]}
_REQUESTS = _list(_ref("RouteRequest"), MAX_BATCH)
_BATCH = {"oneOf": [_REQUESTS, _object(requests=_REQUESTS)]}
_DECISIONS = _object(decisions={"type": "array", "items": {"anyOf": [_ref("RouteAnswer"), _ref("GatewayError")]}})


class Generator(SchemaGenerator):
    """Generates the document from the endpoints below /api/ and adds the gateway's endpoints."""

    @override
    def get_schema(self, request: Any = None, public: bool = True) -> dict[str, Any]:
        """Return the document."""
        document: dict[str, Any] = super().get_schema(request=None, public=True)
        paths, schemas = gateway_part()
        document["paths"] = dict(sorted({**document["paths"], **paths}.items()))
        components = document["components"]["schemas"]
        clashes = components.keys() & schemas.keys()
        if clashes:
            raise ValueError(f"two schemas share a name: {', '.join(sorted(clashes))}")
        document["components"]["schemas"] = dict(sorted({**components, **schemas}.items()))
        return document


def openapi_document() -> dict[str, Any]:
    """Return the complete OpenAPI document."""
    return Generator(patterns=None).get_schema()
