"""Builds the bodies and stream chunks of completions and chat completions, byte by byte where it is hot.

A stream chunk differs from its neighbours in its text only, so everything around it is encoded once
per request.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

_encode = msgspec.json.Encoder().encode
_MARK = "\x00"
_MARK_JSON = b'"\\u0000"'
DONE = b"data: [DONE]\n\n"


def usage(prompt_tokens: int, output_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """Return the usage object, cached prompt tokens included."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


class AnswerShape(Protocol):
    """What one request's answer looks like in the API that was asked."""

    def whole(self, text: str, reason: str, counts: dict[str, Any], transfer: object = None) -> bytes:
        """Return the body of an answer that is not streamed; `transfer` goes out as its kv_transfer_params."""
        ...

    def preamble(self) -> bytes:
        """Return what a stream begins with before the engine has begun."""
        ...

    def opening(self) -> bytes:
        """Return what comes before the first text, together with it."""
        ...

    def piece(self, text: str) -> bytes:
        """Return a chunk with text."""
        ...

    def ending(
        self,
        text: str,
        everything: str,
        reason: str,
        counts: dict[str, Any],
        *,
        with_usage: bool,
        transfer: object = None,
    ) -> bytes:
        """Return the last text, and what ends the stream; `everything` is the whole answer, `transfer` as above."""
        ...


class Answer:
    """The shape of one request's answer; `answer_id` carries the prefix cmpl- or chatcmpl- already."""

    def __init__(self, answer_id: str, model: str, created: int, *, chat: bool) -> None:
        self._chat = chat
        self._head: dict[str, Any] = {"id": answer_id, "created": created, "model": model}
        self._object = "chat.completion" if chat else "text_completion"
        self._chunk_object = "chat.completion.chunk" if chat else "text_completion"
        # The text comes after everything that a caller may have named, so the last mark is ours.
        self._before, _, self._after = _event(self._chunk(_MARK, None)).rpartition(_MARK_JSON)

    def whole(self, text: str, reason: str, counts: dict[str, Any], transfer: object = None) -> bytes:
        """Return the body of an answer that is not streamed; `transfer` goes out as its kv_transfer_params."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        more = {} if transfer is None else {"kv_transfer_params": transfer}
        return _encode({**self._head, "object": self._object, "choices": [choice], "usage": counts, **more})

    def preamble(self) -> bytes:
        """Return nothing: such streams begin with their first token."""
        return b""

    def opening(self) -> bytes:
        """Return the chunk that comes before the first text: the role, for chat only."""
        if not self._chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return _event({**self._head, "object": self._chunk_object, "choices": [choice]})

    def piece(self, text: str) -> bytes:
        """Return a chunk with text."""
        return self._before + _encode(text) + self._after

    def ending(
        self,
        text: str,
        everything: str,
        reason: str,
        counts: dict[str, Any],
        *,
        with_usage: bool,
        transfer: object = None,
    ) -> bytes:
        """Return the last text, the usage where it was asked for, and the mark of the end."""
        return self.last_piece(text, reason, transfer) + (self.usage_piece(counts) if with_usage else b"") + DONE

    def last_piece(self, text: str, reason: str, transfer: object = None) -> bytes:
        """Return the chunk with the last text and the reason of the end."""
        more = {} if transfer is None else {"kv_transfer_params": transfer}
        return _event({**self._chunk(text, reason), **more})

    def usage_piece(self, counts: dict[str, Any]) -> bytes:
        """Return the chunk that has no choices but the usage."""
        return _event({**self._head, "object": self._chunk_object, "choices": [], "usage": counts})

    def _chunk(self, text: str, reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if self._chat:
            choice["delta"] = {"content": text}
        else:
            choice["text"] = text
        return {**self._head, "object": self._chunk_object, "choices": [choice]}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"
