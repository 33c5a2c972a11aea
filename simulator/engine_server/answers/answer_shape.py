"""The response format of one request, for any API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

encode = msgspec.json.Encoder().encode


class WholeAnswer(msgspec.Struct, frozen=True, gc=False):
    """A complete response; `reason` is OpenAI's finish reason, `usage` is OpenAI's usage object."""

    text: str
    reason: str
    usage: dict[str, Any]
    transfer: dict[str, Any] | None = None
    """Sent as the response's kv_transfer_params."""

    @property
    def more(self) -> dict[str, Any]:
        """Additional fields of responses with kv_transfer_params."""
        return {} if self.transfer is None else {"kv_transfer_params": self.transfer}


class AnswerShape(ABC):
    """Builds the body of one response, or the chunks of its stream."""

    content_type = b"application/json"
    """Content type of a response that is not streamed."""

    @abstractmethod
    def whole(self, answer: WholeAnswer) -> bytes:
        """Return the body of a response that is not streamed."""

    def preamble(self) -> bytes:
        """Return the part of a stream that is sent before the engine starts; empty in most APIs."""
        return b""

    @abstractmethod
    def opening(self) -> bytes:
        """Return the part before the first text, which is sent together with it."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """Return a stream chunk with text."""

    @abstractmethod
    def ending(self, text: str, answer: WholeAnswer, *, with_usage: bool) -> bytes:
        """Return the last text and the end of the stream. Only OpenAI's streams can omit usage."""


def usage(prompt_tokens: int, output_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Return OpenAI's usage object, including cached prompt tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def typed_event(kind: str, fields: dict[str, Any]) -> bytes:
    """Return a server-sent event that states its type."""
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **fields}) + b"\n\n"
