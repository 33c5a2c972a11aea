"""What one request's answer looks like, whichever API was asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

encode = msgspec.json.Encoder().encode


class WholeAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer that is complete; `reason` is OpenAI's word for why it ended, `usage` its usage object."""

    text: str
    reason: str
    usage: dict[str, Any]
    transfer: dict[str, Any] | None = None
    """Goes out as its kv_transfer_params."""

    @property
    def more(self) -> dict[str, Any]:
        """The fields that only answers with kv_transfer_params have."""
        return {} if self.transfer is None else {"kv_transfer_params": self.transfer}


class AnswerShape(ABC):
    """Builds the body of one answer, or the chunks of its stream."""

    content_type = b"application/json"
    """Of an answer that is not streamed."""

    @abstractmethod
    def whole(self, answer: WholeAnswer) -> bytes:
        """Return the body of an answer that is not streamed."""

    def preamble(self) -> bytes:
        """Return what a stream begins with before the engine has begun; nothing in most APIs."""
        return b""

    @abstractmethod
    def opening(self) -> bytes:
        """Return what comes before the first text, together with it."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """Return a chunk with text."""

    @abstractmethod
    def ending(self, text: str, answer: WholeAnswer, *, with_usage: bool) -> bytes:
        """Return the last text, and what ends the stream; only OpenAI's streams can be without usage."""


def usage(prompt_tokens: int, output_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Return OpenAI's usage object, cached prompt tokens included."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def typed_event(kind: str, fields: dict[str, Any]) -> bytes:
    """Return an event of a stream that names the type of each."""
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **fields}) + b"\n\n"
