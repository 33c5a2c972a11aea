"""SGLang's model gateway (smg, successor of sglang-router): its token dump, and its cache trace (`SMG_CACHE_TRACE=1`).

Source: smg-project/smg, model_gateway/src/observability/{token_dump/line.rs (format v1), cache_trace.rs (schema 1)}.
The token dump has token ids and times; the cache trace names only the engine of each request.
"""

from __future__ import annotations

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


class SglangLog:
    """Reads the lines of one file in order. Mutable: the calls of its token dump that have not ended."""

    def __init__(self) -> None:
        self._calls: dict[Any, tuple[str, int]] = {}
        """Number of a call → its request's id, and its output tokens so far."""

    def __call__(self, line: bytes) -> LoggedRequest:
        """Return what one line states."""
        if _EVIDENCE in line:
            return _dispatched(json_object(line[line.index(_EVIDENCE) + len(_EVIDENCE) :].strip()))
        fields = json_object(line)
        if "evidence" in fields:
            return _dispatched(json_object(str(fields["evidence"]).encode()))
        match fields.get("kind"):
            case "request" if fields.get("leg") != "decode":
                return self._request(fields)
            case "response" if fields.get("call") in self._calls:
                return self._response(fields)
            case "end" if fields.get("call") in self._calls:
                name, output_tokens = self._calls.pop(fields["call"])
                outcome = {"ok": "completed", "cancelled": "cancelled"}.get(str(fields.get("status")), "failed")
                total_s = milliseconds(fields.get("t_ms"))
                return LoggedRequest(request_id=name, output_tokens=output_tokens, total_s=total_s, outcome=outcome)
        raise OtherLineError(f"line of kind {str(fields.get('kind') or fields.get('message') or 'unknown')[:40]}")

    def _request(self, fields: dict[str, Any]) -> LoggedRequest:
        name, tokens = str(fields.get("root_request_id") or fields.get("request_id")), fields.get("input_ids")
        if not isinstance(tokens, list):
            raise UnusableLineError("input_ids are missing")
        self._calls[fields.get("call")] = name, 0
        return LoggedRequest(
            request_id=name,
            arrived_s=unix_s(fields.get("t")),
            engine=address(fields.get("worker")),
            prompt_tokens=len(tokens),
            blocks=token_blocks(tokens),
            block_source="tokens",
        )

    def _response(self, fields: dict[str, Any]) -> LoggedRequest:
        name, before = self._calls[fields["call"]]
        new = len(fields.get("token_ids") or ())
        # The last message of a stream can repeat all ids.
        tokens = max(before, new) if fields.get("part") == "complete" else before + new
        self._calls[fields["call"]] = name, tokens
        return LoggedRequest(request_id=name, ttft_s=milliseconds(fields.get("t_ms")) if tokens else None)


def _dispatched(evidence: dict[str, Any]) -> LoggedRequest:
    """Return the dispatch in one line of the cache trace."""
    selections, at_ns = evidence.get("selections"), number(evidence.get("dispatch_timestamp_ns"))
    if at_ns is None or not isinstance(selections, list) or not selections:
        raise OtherLineError("routing evidence without a dispatch")
    return LoggedRequest(
        request_id=str(evidence.get("root_id") or ""),
        arrived_s=at_ns / 1e9,
        engine=address(selections[0].get("worker")),
    )
