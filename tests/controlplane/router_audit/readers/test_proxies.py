"""Envoy and LiteLLM. Samples are constructed from the projects' documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.router_audit.readers.envoy_log import envoy_request
from controlplane.router_audit.readers.litellm_log import litellm_request
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, UnusableLineError

EXPECTED = LoggedRequest(
    request_id="r-1", arrived_s=1795946400.25, engine="10.0.2.1:8000", prompt_tokens=2000, estimated=True, total_s=2.5,
    outcome="completed",
)  # fmt: skip
DEFAULT = (
    b'[2026-11-29T10:00:00.250Z] "POST /v1/chat/completions HTTP/2" 200 - 8000 226 2500 100 "10.0.35.28" "python" '
    b'"r-1" "models" "tcp://10.0.2.1:8000"\n'
)
GATEWAY: dict[str, Any] = {
    "start_time": "2026-11-29T10:00:00.250Z", "method": "POST", "x-envoy-origin-path": "/v1/chat/completions",
    "response_code": 200, "bytes_received": 8000, "bytes_sent": 226, "duration": 2500, "x-request-id": "r-1",
    "upstream_host": "10.0.2.1:8000", ":authority": "models",
}  # fmt: skip
ISTIO: dict[str, Any] = {
    "start_time": "2026-11-29T10:00:00.250Z", "path": "/v1/chat/completions", "response_code": 200,
    "bytes_received": 8000, "duration": 2500, "request_id": "r-1", "upstream_host": "10.0.2.1:8000",
}  # fmt: skip


@pytest.mark.parametrize("line", [DEFAULT, json.dumps(GATEWAY).encode(), json.dumps(ISTIO).encode()])
def test_envoys_formats_state_the_same(line: bytes) -> None:
    assert envoy_request(line) == EXPECTED


def test_envoys_further_fields_and_other_lines() -> None:
    more = {**ISTIO, "prompt_tokens": "900", "cached_tokens": "512", "session": "s", "response_code": 503}
    request = envoy_request(json.dumps(more).encode())
    assert (request.prompt_tokens, request.estimated, request.cached_tokens, request.session, request.outcome) == (
        900, False, 512, "s", "failed",
    )  # fmt: skip
    with pytest.raises(OtherLineError, match="another path"):
        envoy_request(DEFAULT.replace(b"/v1/chat/completions", b"/healthz"))
    with pytest.raises(UnusableLineError, match="names no upstream"):
        envoy_request(DEFAULT.replace(b"tcp://10.0.2.1:8000", b"-"))
    with pytest.raises(UnusableLineError, match="neither Envoy's default format nor JSON"):
        envoy_request(b"[2026-11-29T10:00:00.250Z] something else")


LITELLM: dict[str, Any] = {
    "id": "chatcmpl-1", "trace_id": "t", "call_type": "acompletion", "status": "success", "prompt_tokens": 900,
    "completion_tokens": 30, "startTime": 1000.0, "endTime": 1003.5, "completionStartTime": 1000.25,
    "model": "m", "model_id": "deployment-1", "api_base": "http://10.0.0.1:8000/v1", "cache_hit": False,
    "metadata": {"usage_object": {"prompt_tokens_details": {"cached_tokens": 512}}},
}  # fmt: skip


def test_litellms_payload_is_read_with_and_without_its_envelope() -> None:
    expected = LoggedRequest(
        request_id="chatcmpl-1", arrived_s=1000.0, engine="10.0.0.1:8000", prompt_tokens=900, output_tokens=30,
        cached_tokens=512, ttft_s=0.25, total_s=3.5, outcome="completed",
    )  # fmt: skip
    for line in (LITELLM, {"model": "m", "standard_logging_object": LITELLM}):
        assert litellm_request(json.dumps(line).encode()) == expected


def test_litellm_prompts_become_blocks_that_longer_conversations_share() -> None:
    first = {"role": "user", "content": "word " * 1000}
    turns = ([first], [first, {"role": "assistant", "content": "answer"}, first])
    short, long = (litellm_request(json.dumps({**LITELLM, "messages": turn}).encode()) for turn in turns)
    assert short.blocks
    assert long.blocks[: len(short.blocks)] == short.blocks
    assert long.block_source == "prompt"
    assert "word" not in repr((short, long))


def test_litellm_lines_that_reached_no_engine_or_did_not_stream() -> None:
    with pytest.raises(OtherLineError, match="own cache"):
        litellm_request(json.dumps({**LITELLM, "cache_hit": True}).encode())
    whole = litellm_request(json.dumps({**LITELLM, "completionStartTime": 1003.5, "status": "failure"}).encode())
    assert (whole.ttft_s, whole.outcome) == (None, "failed")
    with pytest.raises(UnusableLineError, match="no time"):
        litellm_request(b'{"id": "x"}')
