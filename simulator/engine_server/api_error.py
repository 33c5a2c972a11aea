"""Error responses in vLLM's format: OpenAI's structure with vLLM's type names."""

from __future__ import annotations

_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    413: "RequestEntityTooLargeError",
    503: "ServiceUnavailableError",
}


class EngineApiError(Exception):
    """A response with a status other than 200; `param` names the invalid field."""

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
        """Return {"type": "error", "error": {type, message}}, vLLM's error format at Anthropic's paths."""
        kind = _TYPES.get(self.status, "InternalServerError")
        return {"type": "error", "error": {"type": kind, "message": self.message}}
