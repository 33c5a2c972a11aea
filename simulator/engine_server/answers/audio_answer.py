"""Responses of the audio API, in the formats and chunks of vLLM."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from simulator.engine_server.answers.answer_shape import AnswerShape, WholeAnswer, encode

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
