"""Builds the bodies and stream chunks of completions, chat completions, and the audio API, as vLLM does; hot parts are
assembled from bytes.

Only the text differs between the chunks of a stream, so everything around it is encoded once per request.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from simulator.engine_server.answers.answer_shape import AnswerShape, WholeAnswer, encode

_MARK = "\x00"
_MARK_JSON = b'"\\u0000"'
DONE = b"data: [DONE]\n\n"


class Answer(AnswerShape):
    """The response of one request; `answer_id` already has its prefix cmpl- or chatcmpl-."""

    def __init__(self, answer_id: str, model: str, created: int, *, chat: bool) -> None:
        self._chat = chat
        self._head: dict[str, Any] = {"id": answer_id, "created": created, "model": model}
        self._object = "chat.completion" if chat else "text_completion"
        self._chunk_object = "chat.completion.chunk" if chat else "text_completion"
        # The text follows everything that a client may name, so the last mark is ours.
        self._before, _, self._after = _event(self._chunk(_MARK, None)).rpartition(_MARK_JSON)

    @override
    def whole(self, answer: WholeAnswer) -> bytes:
        said = {"message": {"role": "assistant", "content": answer.text}} if self._chat else {"text": answer.text}
        choice = {"index": 0, "logprobs": None, "finish_reason": answer.reason, **said}
        body = {**self._head, "object": self._object, "choices": [choice], "usage": answer.usage, **answer.more}
        return encode(body)

    @override
    def opening(self) -> bytes:
        """Return the chunk before the first text, which contains the role; only for chat."""
        if not self._chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return _event({**self._head, "object": self._chunk_object, "choices": [choice]})

    @override
    def piece(self, text: str) -> bytes:
        return self._before + encode(text) + self._after

    @override
    def ending(self, text: str, answer: WholeAnswer, *, with_usage: bool) -> bytes:
        """Return the last text with the finish reason, the usage if requested, and the end marker."""
        last = _event({**self._chunk(text, answer.reason), **answer.more})
        counted = {**self._head, "object": self._chunk_object, "choices": [], "usage": answer.usage}
        return last + (_event(counted) if with_usage else b"") + DONE

    def _chunk(self, text: str, reason: str | None) -> dict[str, Any]:
        said = {"delta": {"content": text}} if self._chat else {"text": text}
        choice = {"index": 0, "logprobs": None, "finish_reason": reason, **said}
        return {**self._head, "object": self._chunk_object, "choices": [choice]}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


_DONE = b"data: [DONE]\n\n"
_TEXTS = {"text": "{text}\n", "srt": "1\n00:00:00,000 --> 00:00:01,000\n{text}\n", "vtt": "WEBVTT\n\n{text}\n"}


class AudioAnswer(AnswerShape):
    """The response format of one request; `task` is transcription or translation."""

    def __init__(self, answer_id: str, model: str, created: int, task: str, form: str) -> None:
        self._head = {"id": answer_id, "object": f"{task}.chunk", "created": created, "model": model}
        self._task, self._form = task, form
        self.content_type = b"text/plain; charset=utf-8" if form in _TEXTS else b"application/json"

    @override
    def whole(self, answer: WholeAnswer) -> bytes:
        if self._form in _TEXTS:
            return _TEXTS[self._form].format(text=answer.text).encode()
        more = {"task": self._task, "segments": []} if self._form == "verbose_json" else {}
        return encode({"text": answer.text, "usage": {"type": "duration", "seconds": 1}, **more})

    @override
    def opening(self) -> bytes:
        return b""

    @override
    def piece(self, text: str) -> bytes:
        return self._event({"delta": {"content": text}, "finish_reason": None})

    @override
    def ending(self, text: str, answer: WholeAnswer, *, with_usage: bool) -> bytes:
        return self._event({"delta": {"content": text}, "finish_reason": answer.reason}) + _DONE

    def _event(self, choice: dict[str, Any]) -> bytes:
        return b"data: " + encode({**self._head, "choices": [choice]}) + b"\n\n"
