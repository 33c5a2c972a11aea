"""Errors in the format of each path's API: as a complete answer, and as the last event of a broken stream.

Below `/v1/messages` errors have Anthropic's shape, everywhere else OpenAI's (gateway.http.openai_error); the
streams of `/v1/responses` have an error event of their own.
"""

from __future__ import annotations

import msgspec
from typing_extensions import override

from gateway.http.openai_error import ApiError, error_body

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
    """OpenAI's, of chat and completions."""

    def body(self, status: int, message: str, code: str, param: str | None = None) -> bytes:
        """Return the JSON body of an error."""
        return error_body(status, message, code, param)

    def event(self, status: int, message: str, code: str) -> bytes:
        """Return the event that ends a stream; it begins with the end of what may stand there half."""
        return b"\n\ndata: " + self.body(status, message, code) + b"\n\n"

    def of(self, error: ApiError) -> bytes:
        """Return the JSON body of this error."""
        return self.body(error.status, error.message, error.code, error.param)


class ResponsesErrors(ErrorFormat):
    """OpenAI's, of responses, whose streams have typed events."""

    @override
    def event(self, status: int, message: str, code: str) -> bytes:
        event = {"type": "error", "code": code, "message": message, "param": None}
        return b"\n\nevent: error\ndata: " + msgspec.json.encode(event) + b"\n\n"


class AnthropicErrors(ErrorFormat):
    """Anthropic's; `code` and `param` are added, since its types are few."""

    @override
    def body(self, status: int, message: str, code: str, param: str | None = None) -> bytes:
        error = {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message, "code": code, "param": param}
        return msgspec.json.encode({"type": "error", "error": error})

    @override
    def event(self, status: int, message: str, code: str) -> bytes:
        return b"\n\nevent: error\ndata: " + self.body(status, message, code) + b"\n\n"


OPENAI, RESPONSES, ANTHROPIC = ErrorFormat(), ResponsesErrors(), AnthropicErrors()


def format_of(path: str) -> ErrorFormat:
    """Return the format of whole answers at this path."""
    return ANTHROPIC if path == MESSAGES or path.startswith(MESSAGES + "/") else OPENAI
