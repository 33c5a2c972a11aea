"""Errors in the format of each path's API: as a complete response, and as the last event of a broken stream.

Below `/v1/messages` errors have Anthropic's format, elsewhere OpenAI's (gateway.server.http.openai_error). Streams of
`/v1/responses` have a separate error event.
"""

from __future__ import annotations

import msgspec
from typing_extensions import override

from gateway.server.http.openai_error import ApiError, error_body

MESSAGES = "/v1/messages"
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ErrorFormat:
    """OpenAI's error format of chat and completions."""

    def body(self, status: int, message: str, code: str, param: str | None = None) -> bytes:
        """Return the JSON body of an error."""
        return error_body(status, message, code, param)

    def event(self, status: int, message: str, code: str) -> bytes:
        """Return the event that ends a stream. It first ends an event that may be only partly sent."""
        return b"\n\n" + self.as_event(self.body(status, message, code))

    def as_event(self, body: bytes) -> bytes:
        """Return a complete answer as the only event of a stream."""
        return b"data: " + body + b"\n\n"

    def of(self, error: ApiError) -> bytes:
        """Return the JSON body of this error."""
        return self.body(error.status, error.message, error.code, error.param)


class ResponsesErrors(ErrorFormat):
    """OpenAI's error format of responses, whose streams have typed events."""

    @override
    def as_event(self, body: bytes) -> bytes:
        error = msgspec.json.decode(body).get("error")
        if not isinstance(error, dict):
            return super().as_event(body)
        event = {"type": "error", **{name: error.get(name) for name in ("code", "message", "param")}}
        return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"


class AnthropicErrors(ErrorFormat):
    """Anthropic's error format; `code` and `param` are added, because it has few types."""

    @override
    def body(self, status: int, message: str, code: str, param: str | None = None) -> bytes:
        error = {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message, "code": code, "param": param}
        return msgspec.json.encode({"type": "error", "error": error})

    @override
    def as_event(self, body: bytes) -> bytes:
        return b"event: error\ndata: " + body + b"\n\n"


OPENAI, RESPONSES, ANTHROPIC = ErrorFormat(), ResponsesErrors(), AnthropicErrors()


def format_of(path: str) -> ErrorFormat:
    """Return the error format of complete responses at this path."""
    return ANTHROPIC if path == MESSAGES or path.startswith(MESSAGES + "/") else OPENAI
