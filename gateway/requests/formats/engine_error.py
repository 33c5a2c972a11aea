"""An error in an answer with status 200, with the status that the answer should have had.

vLLM and SGLang send it as a stream event after the status was sent. Proxies in front of engines also send it as a
complete answer.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_REASON = 500
_ERROR_KINDS = frozenset(("error", "response.failed"))
_STATUSES = {
    "BadRequestError": 400,
    "NotFoundError": 404,
    "UnprocessableEntityError": 422,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 503,
    "ServiceUnavailableError": 503,
}


class EngineError(msgspec.Struct, frozen=True):
    """An engine's error in place of an answer."""

    status: int
    """HTTP status named in the error, else 500."""
    body: bytes
    """The error as a complete answer of its API."""


def error_in(answer: dict[str, Any]) -> EngineError | None:
    """Return the error in a decoded answer or event, None if it is no error."""
    response = answer.get("response")
    error = answer.get("error") or (response.get("error") if isinstance(response, dict) else None)
    named = answer.get("type") in _ERROR_KINDS or answer.get("object") == "error"
    if not named and not (isinstance(error, dict) or (error and not answer.get("choices"))):
        return None
    details = error if isinstance(error, dict) else {"message": str(error)} if error else answer
    shown = {"error": details} if isinstance(response, dict) or not isinstance(error, dict) else answer
    return EngineError(_status(details), msgspec.json.encode(shown))


def reason_in(body: bytes) -> str:
    """Return the message of a complete error, empty if it has no readable message."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    error = answer.get("error") if isinstance(answer, dict) else None
    message = (error if isinstance(error, dict) else answer if isinstance(answer, dict) else {}).get("message")
    return message[:MAX_REASON] if isinstance(message, str) else ""


def _status(details: dict[str, Any]) -> int:
    """Return the status that an error names, by number or by a known name."""
    for field in ("code", "status_code", "status", "type"):
        value = details.get(field)
        if isinstance(value, str):
            value = _STATUSES.get(value, int(value) if value.isascii() and value.isdigit() and len(value) == 3 else 0)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return 500
