"""Dynamo, SGLang's gateway, llm-d, and production-stack. Samples are constructed from the projects' sources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controlplane.router_audit.readers.dynamo_log import dynamo_request
from controlplane.router_audit.readers.llm_d_log import LlmDLog
from controlplane.router_audit.readers.sglang_log import SglangLog
from controlplane.router_audit.readers.vllm_router_log import vllm_router_request
from planning.router_audit.logged_request import LoggedRequest, OtherLineError, RequestLog, UnusableLineError

DYNAMO: dict[str, Any] = {
    "schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1_700_000_003_000,
    "event_source": "dynamo", "agent_context": {"session_id": "run-42"},
    "request": {
        "request_id": "req-1", "model": "m", "input_tokens": 1100, "output_tokens": 40, "cached_tokens": 512,
        "request_received_ms": 1_700_000_001_000, "ttft_ms": 250.5, "total_time_ms": 2000.0, "kv_hit_rate": 0.46,
        "worker": {"prefill_worker_id": 7, "prefill_dp_rank": 1, "decode_worker_id": 9, "decode_dp_rank": 0},
        "replay": {"trace_block_size": 256, "input_length": 1100, "input_sequence_hashes": [11, 12, 13, 2**64 - 1]},
    },
}  # fmt: skip


def test_dynamos_request_end_is_read_whole() -> None:
    assert dynamo_request(json.dumps(DYNAMO).encode()) == LoggedRequest(
        request_id="req-1", arrived_s=1_700_000_001.0, engine="7#1", prompt_tokens=1100, output_tokens=40,
        cached_tokens=512, ttft_s=0.2505, total_s=2.0, blocks=(12, 2**64 - 1), block_source="hashes", session="run-42",
    )  # fmt: skip


def test_dynamos_replay_records_name_no_engine() -> None:
    request = {"request_id": "req-1", "request_received_ms": 1000, "output_tokens": 4, "replay": {"input_length": 4}}
    bare = {**DYNAMO, "request": request, "agent_context": None}
    assert dynamo_request(json.dumps(bare).encode()) == LoggedRequest(
        request_id="req-1", arrived_s=1.0, prompt_tokens=4, output_tokens=4
    )


def test_other_records_of_dynamo_are_skipped_and_wrong_ones_rejected() -> None:
    with pytest.raises(OtherLineError, match="no request_end"):
        dynamo_request(json.dumps({**DYNAMO, "event_type": "tool_end"}).encode())
    with pytest.raises(UnusableLineError, match="request_received_ms"):
        dynamo_request(json.dumps({**DYNAMO, "request": {"request_id": "x"}}).encode())
    replay = {"trace_block_size": 16, "input_sequence_hashes": ["a"]}
    with pytest.raises(UnusableLineError, match="64 bits"):
        dynamo_request(json.dumps({**DYNAMO, "request": {**DYNAMO["request"], "replay": replay}}).encode())


def joined(reader: Any, *lines: object) -> list[LoggedRequest]:
    log = RequestLog()
    for number, line in enumerate(lines):
        try:
            log.add(f"log:{number}", reader(line if isinstance(line, bytes) else json.dumps(line).encode()))
        except OtherLineError as error:
            log.skip(str(error))
    return log.requests()


DUMP = {"v": 1, "call": 7}


def dumped_call(leg: str = "single") -> list[dict[str, Any]]:
    return [
        {**DUMP, "kind": "request", "t": "2026-10-09T21:00:01.500Z", "model": "m", "worker": "grpc://w1:30000",
         "runtime": "sglang", "transport": "grpc", "leg": leg, "request_id": "r1", "root_request_id": "root",
         "type": "sglang.grpc.scheduler.GenerateRequest", "input_ids": list(range(1200)), "msg": "CgE="},
        {**DUMP, "kind": "response", "seq": 0, "t_ms": 42, "part": "chunk", "index": 0, "token_ids": [5], "msg": ""},
        {**DUMP, "kind": "response", "seq": 1, "t_ms": 50, "part": "chunk", "index": 0, "token_ids": [6, 7], "msg": ""},
        {**DUMP, "kind": "response", "seq": 2, "t_ms": 60, "part": "complete", "index": 0, "token_ids": [5, 6, 7],
         "finish_reason": "stop", "msg": ""},
        {**DUMP, "kind": "end", "t_ms": 61, "status": "ok", "responses": 3, "error": None},
    ]  # fmt: skip


def test_a_call_of_smgs_token_dump_is_one_request_with_blocks_of_its_token_ids() -> None:
    session = {"v": 1, "kind": "session", "session": "s1", "models": ["m"]}
    (request,) = joined(SglangLog(), session, *dumped_call())
    assert (request.request_id, request.engine, request.prompt_tokens, request.output_tokens) == (
        "root", "w1:30000", 1200, 3,
    )  # fmt: skip
    assert (request.arrived_s, request.ttft_s, request.total_s) == (1791579601.5, 0.042, 0.061)
    assert (len(request.blocks), request.block_source, request.outcome) == (2, "tokens", "completed")
    other = {**dumped_call()[0], "input_ids": [*range(600), 9]}
    assert SglangLog()(json.dumps(other).encode()).blocks == request.blocks[:1]
    assert joined(SglangLog(), *dumped_call("decode")) == []


def test_smgs_cache_trace_names_the_engine_as_text_or_json() -> None:
    evidence = {
        "schema": 1, "router_epoch": "e", "dispatch_timestamp_ns": 1_791_579_601_500_000_000, "root_id": "root",
        "dispatch_id": "d", "attempt": 1, "engine_ids": ["x"], "mode": "single",
        "selections": [{"policy": "cache_aware", "origin": "policy", "worker": "http://10.0.0.3:8000"}],
    }  # fmt: skip
    text = b"2026-10-09 21:00:01  INFO smg::cache_trace: src/x.rs:9: Cache routing dispatch evidence="
    expected = LoggedRequest(request_id="root", arrived_s=1791579601.5, engine="10.0.0.3:8000")
    assert joined(SglangLog(), text + json.dumps(evidence).encode()) == [expected]
    message = {"timestamp": "2026-10-09 21:00:01", "message": "Cache routing dispatch", "target": "smg::cache_trace"}
    assert joined(SglangLog(), {**message, "evidence": json.dumps(evidence)}, message) == [expected]


def test_sglang_routers_debug_log_names_the_engine_of_each_request() -> None:
    span = 'http_request{method=POST uri=/v1/chat/completions version=HTTP/1.1 module="smg" request_id="r1"}'
    sent = f"{span}: smg::observability::events: /src/observability/events.rs:58: Sending request url=http://W1:30000"
    colored = sent.replace(span, f"\x1b[1m{span}\x1b[0m").replace("url=", "\x1b[3murl\x1b[0m\x1b[2m=\x1b[0m")
    expected = LoggedRequest(request_id="r1", arrived_s=1791579601.0, engine="w1:30000")
    for line in (
        f"2026-10-09 21:00:01 DEBUG {sent}",
        f"\x1b[2m2026-10-09 21:00:01\x1b[0m \x1b[34mDEBUG\x1b[0m {colored}",
    ):
        assert joined(SglangLog(), line.encode()) == [expected]
    with pytest.raises(OtherLineError, match="something else"):
        SglangLog()(b"2026-10-09 21:00:01  INFO smg::server: src/server.rs:794: Starting router on 127.0.0.1:1")
    with pytest.raises(UnusableLineError):
        SglangLog()(b"Traceback")


def test_three_messages_of_llm_ds_endpoint_picker_are_one_request() -> None:
    name = {"level": "info", "x-request-id": "r1"}
    requests = joined(
        LlmDLog(),
        {**name, "ts": 1000.25, "msg": "EPP received request"},
        {**name, "ts": 1000.30, "msg": "Request handled", "endpoint": "10.0.0.1:8000,10.0.0.2:8000"},
        {**name, "ts": 1000.31, "msg": "EPP sent request body response(s) to proxy"},
        {**name, "ts": 1002.25, "msg": "EPP sent response body back to proxy"},
        {"ts": "2026-11-29T10:00:00Z", "msg": "Request handled", "x-request-id": "r2", "endpoint": "b:1"},
    )  # fmt: skip
    assert requests == [
        LoggedRequest(request_id="r1", arrived_s=1000.25, engine="10.0.0.1:8000", total_s=2.0),
        LoggedRequest(request_id="r2", arrived_s=1795946400.0, engine="b:1"),
    ]


@pytest.mark.parametrize(
    "wrap", [str, lambda text: json.dumps({"level": "INFO", "message": text})], ids=["text", "json"]
)
def test_production_stacks_line_names_engine_and_session(wrap: Any) -> None:
    routed = "Routing request r1 with session id {} to http://10.0.0.1:8000 at 1700000000.75, process time = 0.2500"
    line = wrap("\x1b[32;20m[2026-11-29 10:00:00,123] INFO:\x1b[0m " + routed.format("user 7")).encode()
    assert vllm_router_request(line) == LoggedRequest(
        request_id="r1", arrived_s=1_700_000_000.5, engine="10.0.0.1:8000", session="user 7"
    )
    assert vllm_router_request(wrap(routed.format("None")).encode()).session == ""
    with pytest.raises(OtherLineError, match="retry"):
        vllm_router_request(wrap("Routing request r1 to http://10.0.0.2:8000 (attempt 2/3)").encode())


@pytest.mark.parametrize(
    "change",
    [{"call": []}, {"token_ids": 3}, {"token_ids": None}, {"t_ms": "x"}, {"evidence": '{"selections": [3]}'}],
    ids=str,
)
def test_hostile_values_in_smgs_lines_end_no_reading(change: dict[str, Any]) -> None:
    requests = joined(SglangLog(), *({**line, **change} for line in dumped_call()), {"kind": "end", "call": {}})
    assert len(requests) == ("evidence" not in change)
