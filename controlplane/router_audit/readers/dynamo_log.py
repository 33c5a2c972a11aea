"""Dynamo's request trace (`DYN_REQUEST_TRACE`), schema dynamo.request.trace.v1.

Source: ai-dynamo/dynamo, lib/llm/src/request_trace/types.rs (RequestTraceRecord).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.router_audit.readers.line_fields import hash_blocks, inner, json_object, milliseconds, whole
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError


def dynamo_request(line: bytes) -> LoggedRequest:
    """Return the request of one `request_end` record."""
    record = json_object(line)
    if record.get("event_type") != "request_end":
        raise OtherLineError("record that is no request_end")
    request, replay = inner(record, "request"), inner(record, "request", "replay")
    received_s = milliseconds(request.get("request_received_ms"))
    if received_s is None:
        raise UnusableLineError("request.request_received_ms is missing; enable request_end records")
    tokens = whole(request.get("input_tokens")) or whole(replay.get("input_length"))
    blocks = hash_blocks(replay.get("input_sequence_hashes"), whole(replay.get("trace_block_size")), tokens)
    return LoggedRequest(
        request_id=str(request.get("x_request_id") or request.get("request_id") or ""),
        arrived_s=received_s,
        engine=_worker(inner(request, "worker")),
        prompt_tokens=tokens,
        output_tokens=whole(request.get("output_tokens")),
        cached_tokens=whole(request.get("cached_tokens")),
        ttft_s=milliseconds(request.get("ttft_ms")),
        total_s=milliseconds(request.get("total_time_ms")),
        blocks=blocks,
        block_source="hashes" if blocks else "",
        session=str(inner(record, "agent_context").get("session_id") or ""),
    )


def _worker(worker: Mapping[str, Any]) -> str:
    """Return the id of the worker that prefilled, with #rank for a data-parallel rank."""
    leg = "prefill" if worker.get("prefill_worker_id") is not None else "decode"
    name, rank = worker.get(f"{leg}_worker_id"), worker.get(f"{leg}_dp_rank")
    return "" if name is None else f"{name}#{rank}" if rank else str(name)
