"""The shape of an answer of `/v1/responses`: one message, and the typed events of its stream."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_PLACE = {"output_index": 0, "content_index": 0}


class ResponsesAnswer:
    """One request's answer. Mutable: the number of the next event."""

    def __init__(self, answer_id: str, model: str, created: int) -> None:
        self._head = {"id": answer_id, "object": "response", "created_at": created, "model": model}
        self._item_id = "msg_" + answer_id
        self._number = 0

    def whole(self, text: str, reason: str, counts: dict[str, Any], transfer: object = None) -> bytes:
        """Return the body of an answer that is not streamed; `transfer` goes out as its kv_transfer_params."""
        return _encode({**self._response(text, reason, counts), "kv_transfer_params": transfer})

    def preamble(self) -> bytes:
        """Return the events that come before the engine has begun."""
        response = {**self._head, "status": "in_progress", "output": [], "usage": None, **_FIXED}
        return b"".join(self._event(kind, response=response) for kind in ("response.created", "response.in_progress"))

    def opening(self) -> bytes:
        """Return the events that come with the first text."""
        item = {**self._item(""), "status": "in_progress", "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._event("response.content_part.added", item_id=self._item_id, part=_part(""), **_PLACE)

    def piece(self, text: str) -> bytes:
        """Return an event with text."""
        return self._event("response.output_text.delta", item_id=self._item_id, delta=text, logprobs=[], **_PLACE)

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
        names = {"item_id": self._item_id, **_PLACE}
        response = self._response(everything, reason, counts)
        if transfer is not None:
            response = {**response, "kv_transfer_params": transfer}
        end = "response.completed" if response["status"] == "completed" else "response.incomplete"
        return b"".join(
            (
                self.piece(text),
                self._event("response.output_text.done", text=everything, logprobs=[], **names),
                self._event("response.content_part.done", part=_part(everything), **names),
                self._event("response.output_item.done", output_index=0, item=self._item(everything)),
                self._event(end, response=response),
            )
        )

    def _item(self, text: str) -> dict[str, Any]:
        head = {"id": self._item_id, "type": "message", "role": "assistant"}
        return {**head, "status": "completed", "content": [_part(text)]}

    def _response(self, text: str, reason: str, counts: dict[str, Any]) -> dict[str, Any]:
        cut = reason == "length"
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
            "output": [self._item(text)],
            "usage": usage,
            **_FIXED,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        value = {"type": kind, "sequence_number": number, **fields}
        return b"event: " + kind.encode() + b"\ndata: " + _encode(value) + b"\n\n"


_FIXED: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
