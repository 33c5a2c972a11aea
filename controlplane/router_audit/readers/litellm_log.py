"""LiteLLM's StandardLoggingPayload, one JSON object a line, as its storage callbacks write it.

Source: docs.litellm.ai, proxy/logging_spec. Prompts are there only if the operator has LiteLLM store them.
"""

from __future__ import annotations

from controlplane.router_audit.readers.line_fields import (
    address,
    chat_blocks,
    inner,
    json_object,
    number,
    unix_s,
    whole,
)
from planning.router_audit.logged_request import LoggedRequest, OtherLineError


def litellm_request(line: bytes) -> LoggedRequest:
    """Return the request of one payload."""
    fields = json_object(line)
    # Callbacks that log all arguments of a call have the payload inside.
    fields = inner(fields, "standard_logging_object") or fields
    if fields.get("cache_hit") is True:
        raise OtherLineError("request that LiteLLM answered from its own cache")
    started_s, ended_s = unix_s(fields.get("startTime")), number(fields.get("endTime"))
    first_s, messages = number(fields.get("completionStartTime")), fields.get("messages")
    # Without streaming, the first token's time is the end's.
    streamed = first_s is not None and ended_s is not None and first_s < ended_s
    blocks, counted = chat_blocks(messages) if isinstance(messages, list) and messages else ((), None)
    usage = inner(fields, "metadata", "usage_object", "prompt_tokens_details")
    return LoggedRequest(
        request_id=str(fields.get("id") or ""),
        arrived_s=started_s,
        engine=address(fields.get("api_base") or fields.get("model_id")),
        prompt_tokens=whole(fields.get("prompt_tokens")) or counted,
        output_tokens=whole(fields.get("completion_tokens")),
        cached_tokens=whole(usage.get("cached_tokens")),
        ttft_s=first_s - started_s if streamed and first_s is not None else None,
        total_s=None if ended_s is None else ended_s - started_s,
        blocks=blocks,
        block_source="prompt" if blocks else "",
        outcome="failed" if fields.get("status") == "failure" else "completed",
    )
