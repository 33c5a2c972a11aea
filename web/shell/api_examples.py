"""Example bodies and curl commands of the API's operations, from the OpenAPI document. Placeholders are in capitals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gateway.server.http.engine_paths import BATCH, ROUTE

MAX_DEPTH = 4
KEY = "$HEADWAY_API_KEY"
_HEADERS = {"If-Match": "ETAG"}
_JSON, _FORM = "application/json", "multipart/form-data"
_CHAT = {"model": "MODEL", "messages": [{"role": "user", "content": "Hello"}]}
_ROUTING: Mapping[str, Any] = {ROUTE: _CHAT, BATCH: {"requests": [_CHAT]}}
"""Bodies of which the schema cannot state what belongs together."""
_INFERENCE: Mapping[str, Any] = {
    "chat/completions": _CHAT,
    "completions": {"model": "MODEL", "prompt": "Hello"},
    "messages": {**_CHAT, "max_tokens": 64},
    "count_tokens": _CHAT,
    "rerank": {"model": "MODEL", "query": "Hello", "documents": ["One", "Two"]},
    "score": {"model": "MODEL", "text_1": "One", "text_2": "Two"},
    "tokenize": {"model": "MODEL", "prompt": "Hello"},
    "detokenize": {"model": "MODEL", "tokens": [1, 2]},
    "": {"model": "MODEL", "input": "Hello"},
}
"""End of a path → a body that other programs document."""


def curl_options(path: str, verb: str, operation: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Return the options of a curl command for the operation, without its URL."""
    options = [] if verb == "get" else [f"-X {verb.upper()}"]
    if any(operation.get("security", ())):
        options.append(f'-H "Authorization: Bearer {KEY}"')
    headers = [
        item["name"] for item in operation.get("parameters", ()) if item["in"] == "header" and item.get("required")
    ]
    options += [f"-H '{name}: {_HEADERS.get(name, _placeholder(name))}'" for name in headers]
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return options
    media_type = _JSON if _JSON in content else next(iter(content))
    schema = content[media_type].get("schema", {})
    if media_type == _FORM:
        fields = _resolved(schema, document)
        return [*options, *(f"-F {name}={_form_value(fields, name)}" for name in fields.get("required", ()))]
    content_type = f"-H 'Content-Type: {media_type}'"
    if media_type != _JSON:
        return [*options, content_type, f"--data-binary @{_placeholder(path.rsplit('/', 1)[-1])}"]
    value = _body(path, operation, schema, document)
    return [*options, content_type, f"-d '{json.dumps(value, indent=2, ensure_ascii=False)}'"] if value else options


def _body(path: str, operation: Mapping[str, Any], schema: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    if path in _ROUTING:
        return _ROUTING[path]
    if operation.get("tags") == ["inference"]:
        return next(body for end, body in _INFERENCE.items() if path.endswith(end))
    return example(schema, document, "VALUE")


def url_path(path: str, operation: Mapping[str, Any]) -> str:
    """Return the path with placeholders for its parts and its required query parameters."""
    shown = re.sub(r"{(\w+)}", lambda part: _placeholder(part[1]), path)
    needed = [
        item["name"] for item in operation.get("parameters", ()) if item["in"] == "query" and item.get("required")
    ]
    return shown + "".join(f"{'&' if at else '?'}{name}={_placeholder(name)}" for at, name in enumerate(needed))


def example(schema: Mapping[str, Any], document: Mapping[str, Any], name: str, depth: int = 0) -> Any:
    """Return an example value: of objects the required values, or the first one if all are optional."""
    schema = _resolved(schema, document)
    for key in ("example", "const"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = next((item for item in kind if item != "null"), "") if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        return _object(schema, document, depth)
    if kind == "array":
        return [example(schema.get("items", {}), document, name, depth + 1)] if depth < MAX_DEPTH else []
    if kind in ("integer", "number"):
        return schema.get("default") or max(1, schema.get("minimum", 1))
    return bool(schema.get("default")) if kind == "boolean" else _placeholder(name)


def _object(schema: Mapping[str, Any], document: Mapping[str, Any], depth: int) -> dict[str, Any]:
    fields = schema.get("properties", {})
    # The reason for the audit comes first, and says nothing about the object.
    names = schema.get("required") or [name for name in fields if name != "why"][:1] or list(fields)
    if depth >= MAX_DEPTH:
        return {}
    return {name: example(fields.get(name, {}), document, name, depth + 1) for name in names}


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema behind references, and the first alternative that is not null."""
    while True:
        alternatives = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if "$ref" in schema:
            schema = document["components"]["schemas"].get(schema["$ref"].rpartition("/")[2], {})
        elif alternatives:
            schema = next((item for item in alternatives if item.get("type") != "null"), {})
        else:
            return schema


def _form_value(fields: Mapping[str, Any], name: str) -> str:
    is_file = fields["properties"].get(name, {}).get("format") == "binary"
    return f"@{_placeholder(name)}" if is_file else _placeholder(name)


def _placeholder(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").upper()
