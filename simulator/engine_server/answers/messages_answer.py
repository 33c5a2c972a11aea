"""The shape of an answer of Anthropic's `/v1/messages`, and the typed events of its stream."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_REASONS = {"length": "max_tokens", "stop": "end_turn"}


class MessagesAnswer:
    """One request's answer."""

    def __init__(self, answer_id: str, model: str, prompt_tokens: int) -> None:
        self._head = {"id": answer_id, "type": "message", "role": "assistant", "model": model}
        self._prompt_tokens = prompt_tokens

    def whole(self, text: str, reason: str, counts: dict[str, Any], transfer: object = None) -> bytes:
        """Return the body of an answer that is not streamed; `transfer` goes out as its kv_transfer_params."""
        more = {} if transfer is None else {"kv_transfer_params": transfer}
        end = {"stop_reason": _REASONS[reason], "stop_sequence": None, "usage": _usage(counts)}
        return _encode({**self._head, "content": [{"type": "text", "text": text}], **end, **more})

    def preamble(self) -> bytes:
        """Return nothing: a message begins with its first text."""
        return b""

    def opening(self) -> bytes:
        """Return the events that come with the first text."""
        usage = {"input_tokens": self._prompt_tokens, "output_tokens": 0}
        message: dict[str, Any] = {**self._head, "content": [], "usage": usage, "stop_reason": None}
        started = _event("message_start", message=message)
        return started + _event("content_block_start", index=0, content_block={"type": "text", "text": ""})

    def piece(self, text: str) -> bytes:
        """Return an event with text."""
        return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

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
        """Return the last text and the events that end the stream, which tell its usage in any case."""
        delta = {"stop_reason": _REASONS[reason], "stop_sequence": None}
        more = {} if transfer is None else {"kv_transfer_params": transfer}
        return b"".join(
            (
                self.piece(text),
                _event("content_block_stop", index=0),
                _event("message_delta", delta=delta, usage=_usage(counts), **more),
                _event("message_stop"),
            )
        )


def _usage(counts: dict[str, Any]) -> dict[str, int]:
    """Return the counts as Anthropic writes them: what was cached is no input."""
    cached = counts["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": counts["prompt_tokens"] - cached,
        "output_tokens": counts["completion_tokens"],
        "cache_read_input_tokens": cached,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + _encode({"type": kind, **fields}) + b"\n\n"
