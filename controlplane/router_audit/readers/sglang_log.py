"""SGLang's model gateway (smg, successor of sglang-router): its token dump, and its cache trace (`SMG_CACHE_TRACE=1`).

Source: smg-project/smg, model_gateway/src/observability/{token_dump/line.rs (format v1), cache_trace.rs (schema 1)}.
The token dump has token ids and times; the cache trace names only the engine of each request. So do the lines "Sending
request" that sglang-router writes with `--log-level debug`, with times in whole seconds (read from lines of 0.3.2).
"""

from __future__ import annotations

import re
from typing import Any

from controlplane.router_audit.readers.line_fields import (
    address,
    json_object,
    milliseconds,
    number,
    token_blocks,
    unix_s,
)
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError

_EVIDENCE = b"evidence="
_COLOR = re.compile(rb"\x1b\[[0-9;]*m")
_MESSAGE = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) +[A-Z]+ ")
_SENT = re.compile(rb'[^"{]*\{.*? request_id="([^"]+)".*\}: .* Sending request url=(\S+)')


class SglangLog:
    """Reads the lines of one file in order. Mutable: the calls of its token dump that have not ended."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, int]] = {}
        """Number of a call → its request's id, and its output tokens so far."""

    def __call__(self, line: bytes) -> LoggedRequest:
        """Return what one line states."""
        if _EVIDENCE in line and not line.startswith(b"{"):
            return _dispatched(json_object(line[line.index(_EVIDENCE) + len(_EVIDENCE) :].strip()))
        text = _COLOR.sub(b"", line)
        if (message := _MESSAGE.match(text)) is not None:
            return _sent(message[1].decode(), text[message.end() :])
        fields = json_object(line)
        if "evidence" in fields:
            return _dispatched(json_object(str(fields["evidence"]).encode()))
        kind, call = fields.get("kind"), str(fields.get("call"))
        match kind:
            case "request" if fields.get("leg") != "decode":
                return self._request(call, fields)
            case "response" if call in self._calls:
                return self._response(call, fields)
            case "end" if call in self._calls:
                name, output_tokens = self._calls.pop(call)
                outcome = {"ok": "completed", "cancelled": "cancelled"}.get(str(fields.get("status")), "failed")
                total_s = milliseconds(fields.get("t_ms"))
                return LoggedRequest(request_id=name, output_tokens=output_tokens, total_s=total_s, outcome=outcome)
        # Not by its text, which could quote a prompt.
        raise OtherLineError("line of another kind" if "kind" in fields else "message about something else")

    def _request(self, call: str, fields: dict[str, Any]) -> LoggedRequest:
        name, tokens = str(fields.get("root_request_id") or fields.get("request_id")), fields.get("input_ids")
        if not isinstance(tokens, list):
            raise UnusableLineError("input_ids are missing")
        self._calls[call] = name, 0
        return LoggedRequest(
            request_id=name,
            arrived_s=unix_s(fields.get("t")),
            engine=address(fields.get("worker")),
            prompt_tokens=len(tokens),
            blocks=token_blocks(tokens),
            block_source="tokens",
        )

    def _response(self, call: str, fields: dict[str, Any]) -> LoggedRequest:
        (name, before), ids = self._calls[call], fields.get("token_ids")
        new = len(ids) if isinstance(ids, list) else 0
        # The last message of a stream can repeat all ids.
        tokens = max(before, new) if fields.get("part") == "complete" else before + new
        self._calls[call] = name, tokens
        return LoggedRequest(request_id=name, ttft_s=milliseconds(fields.get("t_ms")) if tokens else None)


def _sent(at: str, message: bytes) -> LoggedRequest:
    """Return the dispatch that a message of the router states."""
    sent = _SENT.match(message)
    if sent is None:
        raise OtherLineError("message about something else")
    name, url = (part.decode(errors="replace") for part in sent.groups())
    return LoggedRequest(request_id=name, arrived_s=unix_s(at), engine=address(url))


def _dispatched(evidence: dict[str, Any]) -> LoggedRequest:
    """Return the dispatch in one line of the cache trace."""
    selections, at_ns = evidence.get("selections"), number(evidence.get("dispatch_timestamp_ns"))
    chosen = selections[0] if isinstance(selections, list) and selections else None
    if at_ns is None or not isinstance(chosen, dict):
        raise OtherLineError("routing evidence without a dispatch")
    return LoggedRequest(
        request_id=str(evidence.get("root_id") or ""),
        arrived_s=at_ns / 1e9,
        engine=address(chosen.get("worker")),
    )
