"""The response format of `/v1/responses`: one message, and the typed events of its stream."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from simulator.engine_server.answers.answer_shape import AnswerShape, WholeAnswer, encode, typed_event

_INDEX = {"output_index": 0, "content_index": 0}


class ResponsesAnswer(AnswerShape):
    """The response of one request; a stream's events always include its usage. Mutable: the number of the next
    event.
    """

    def __init__(self, answer_id: str, model: str, created: int) -> None:
        self._head = {"id": answer_id, "object": "response", "created_at": created, "model": model}
        self._item_id = "msg_" + answer_id
        self._number = 0

    @override
    def whole(self, answer: WholeAnswer) -> bytes:
        return encode({**self._response(answer), "kv_transfer_params": answer.transfer})

    @override
    def preamble(self) -> bytes:
        """Return the events that precede the engine's start."""
        response = {**self._head, "status": "in_progress", "output": [], "usage": None, **_FIXED}
        return b"".join(self._event(kind, response=response) for kind in ("response.created", "response.in_progress"))

    @override
    def opening(self) -> bytes:
        item = {**self._item(""), "status": "in_progress", "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._event("response.content_part.added", item_id=self._item_id, part=_part(""), **_INDEX)

    @override
    def piece(self, text: str) -> bytes:
        return self._event("response.output_text.delta", item_id=self._item_id, delta=text, logprobs=[], **_INDEX)

    @override
    def ending(self, text: str, answer: WholeAnswer, *, with_usage: bool) -> bytes:
        names = {"item_id": self._item_id, **_INDEX}
        response = {**self._response(answer), **answer.more}
        end = "response.completed" if response["status"] == "completed" else "response.incomplete"
        return b"".join(
            (
                self.piece(text),
                self._event("response.output_text.done", text=answer.text, logprobs=[], **names),
                self._event("response.content_part.done", part=_part(answer.text), **names),
                self._event("response.output_item.done", output_index=0, item=self._item(answer.text)),
                self._event(end, response=response),
            )
        )

    def _item(self, text: str) -> dict[str, Any]:
        head = {"id": self._item_id, "type": "message", "role": "assistant"}
        return {**head, "status": "completed", "content": [_part(text)]}

    def _response(self, answer: WholeAnswer) -> dict[str, Any]:
        cut, counts = answer.reason == "length", answer.usage
        usage = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": counts["prompt_tokens_details"],
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }
        return {
            **self._head,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._item(answer.text)],
            "usage": usage,
            **_FIXED,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return typed_event(kind, {"sequence_number": number, **fields})


_FIXED: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
