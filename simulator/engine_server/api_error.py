"""Errors as vLLM answers them: OpenAI's shape with vLLM's type names."""

from __future__ import annotations

_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    413: "RequestEntityTooLargeError",
    503: "ServiceUnavailableError",
}


class EngineApiError(Exception):
    """An answer other than 200; `param` names the field at fault."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param

    def body(self) -> dict[str, dict[str, str | int | None]]:
        """Return {"error": {message, type, param, code}}."""
        kind = _TYPES.get(self.status, "InternalServerError")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}

    def anthropic_body(self) -> dict[str, str | dict[str, str]]:
        """Return {"type": "error", "error": {type, message}}, as vLLM answers at Anthropic's paths."""
        kind = _TYPES.get(self.status, "InternalServerError")
        return {"type": "error", "error": {"type": kind, "message": self.message}}
