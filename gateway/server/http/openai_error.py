"""Errors in OpenAI's format, so that client libraries display our message instead of a stack trace."""

from __future__ import annotations

import math

import msgspec

ACCEPTED_ENCODINGS = b"gzip, zstd"
"""Accepted codings of request bodies, in the form of RFC 7694."""
DROPPED_REASON = b"x-llm-d-request-dropped-reason"
"""Header in which llm-d states why its flow control dropped a request."""
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """An error response. Handlers raise it anywhere, and the app sends it.

    `message` states what the caller can do and never repeats text of a prompt. `retry_after_s` becomes a Retry-After
    header in whole seconds, 1 to 86,400, `dropped_reason` llm-d's header. `Rejected` (routing.values.decision) defines
    the text for a rejected request, and gateway.access.key_quota for an exhausted quota.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        dropped_reason: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.dropped_reason = dropped_reason

    @property
    def body(self) -> bytes:
        """Return the JSON body."""
        return error_body(self.status, self.message, self.code, self.param)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the error's headers: Retry-After, WWW-Authenticate on a 401, Accept-Encoding on a 415."""
        if self.retry_after_s is not None:
            retry_after = (b"retry-after", b"%d" % max(1, math.ceil(min(self.retry_after_s, 86_400.0))))
            return [retry_after, *([(DROPPED_REASON, self.dropped_reason.encode())] if self.dropped_reason else ())]
        if self.status == 401:
            return [(b"www-authenticate", b"Bearer")]
        if self.status == 415:
            return [(b"accept-encoding", ACCEPTED_ENCODINGS)]
        return []


def error_body(status: int, message: str, code: str, param: str | None = None) -> bytes:
    """Return `{"error": {...}}` as JSON bytes. The HTTP status determines the type."""
    return msgspec.json.encode(
        {"error": {"message": message, "type": _TYPES.get(status, "server_error"), "code": code, "param": param}}
    )
