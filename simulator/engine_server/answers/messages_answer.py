"""The response format of Anthropic's `/v1/messages`, and the typed events of its stream."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from simulator.engine_server.answers.answer_shape import AnswerShape, WholeAnswer, encode, typed_event

_REASONS = {"length": "max_tokens", "stop": "end_turn"}


class MessagesAnswer(AnswerShape):
    """The response of one request. A stream's events always include its usage."""

    def __init__(self, answer_id: str, model: str, prompt_tokens: int) -> None:
        self._head = {"id": answer_id, "type": "message", "role": "assistant", "model": model}
        self._prompt_tokens = prompt_tokens

    @override
    def whole(self, answer: WholeAnswer) -> bytes:
        content = [{"type": "text", "text": answer.text}]
        return encode({**self._head, "content": content, **_end(answer), "usage": _usage(answer), **answer.more})

    @override
    def opening(self) -> bytes:
        usage = {"input_tokens": self._prompt_tokens, "output_tokens": 0}
        message: dict[str, Any] = {**self._head, "content": [], "usage": usage, "stop_reason": None}
        started = _event("message_start", message=message)
        return started + _event("content_block_start", index=0, content_block={"type": "text", "text": ""})

    @override
    def piece(self, text: str) -> bytes:
        return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    @override
    def ending(self, text: str, answer: WholeAnswer, *, with_usage: bool) -> bytes:
        stop = _event("content_block_stop", index=0)
        delta = _event("message_delta", delta=_end(answer), usage=_usage(answer), **answer.more)
        return self.piece(text) + stop + delta + _event("message_stop")


def _end(answer: WholeAnswer) -> dict[str, str | None]:
    return {"stop_reason": _REASONS[answer.reason], "stop_sequence": None}


def _usage(answer: WholeAnswer) -> dict[str, int]:
    """Return the token counts in Anthropic's format, in which cached tokens do not count as input."""
    cached = answer.usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": answer.usage["prompt_tokens"] - cached,
        "output_tokens": answer.usage["completion_tokens"],
        "cache_read_input_tokens": cached,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return typed_event(kind, fields)
