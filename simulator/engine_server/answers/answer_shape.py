"""The form of one request's answer, for any API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

encode = msgspec.json.Encoder().encode


class WholeAnswer(msgspec.Struct, frozen=True, gc=False):
    """A complete answer; `reason` is OpenAI's finish reason, `usage` its usage object."""

    text: str
    reason: str
    usage: dict[str, Any]
    transfer: dict[str, Any] | None = None
    """Sent as its kv_transfer_params."""

    @property
    def more(self) -> dict[str, Any]:
        """Fields of answers with kv_transfer_params only."""
        return {} if self.transfer is None else {"kv_transfer_params": self.transfer}


class AnswerShape(ABC):
    """Builds the body of one answer, or the chunks of its stream."""

    content_type = b"application/json"
    """Content type of an answer that is not streamed."""

    @abstractmethod
    def whole(self, answer: WholeAnswer) -> bytes:
        """Return the body of an answer that is not streamed."""

    def preamble(self) -> bytes:
        """Return the beginning of a stream before the engine has started; empty in most APIs."""
        return b""

    @abstractmethod
    def opening(self) -> bytes:
        """Return the part before the first text, which is sent together with it."""

    @abstractmethod
    def piece(self, text: str) -> bytes:
        """Return a chunk with text."""

    @abstractmethod
    def ending(self, text: str, answer: WholeAnswer, *, with_usage: bool) -> bytes:
        """Return the last text and the end of the stream; only OpenAI's streams can lack usage."""


def usage(prompt_tokens: int, output_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Return OpenAI's usage object, cached prompt tokens included."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def typed_event(kind: str, fields: dict[str, Any]) -> bytes:
    """Return an event of a stream whose events state their type."""
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **fields}) + b"\n\n"
