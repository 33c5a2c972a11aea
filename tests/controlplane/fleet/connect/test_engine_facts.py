"""Responses of current vLLM and SGLang versions, and the facts parsed from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zmq

from bench.live.loopback_ports import free_ports
from controlplane.fleet.connect.connection import start_line
from controlplane.fleet.connect.engine_facts import ConnectedEngineFacts, ConnectRejectedError, ask_engine
from controlplane.fleet.engine_url import CheckedUrl, EngineUrlRules
from controlplane.fleet.preflight import events as preflight_events
from controlplane.fleet.preflight.checks import EnginePreflight, PreflightSubject
from controlplane.fleet.preflight.engine_flags import block_size_flag, events_flag
from tests.certificates import certificates, tls_engine
from tests.controlplane.automation.actuators.http_exchange import Answerer, http_server

CARD = {"object": "model", "root": "/models/tiny", "parent": None, "max_model_len": 512}
VLLM_METRICS = """\
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
vllm:num_requests_running{engine="1",model_name="tiny"} 0.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0
vllm:num_requests_waiting{engine="1",model_name="tiny"} 0.0
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="31"} 1.0
"""
VLLM: dict[str, Any] = {
    "/v1/models": {
        "data": [
            {**CARD, "id": "tiny"},
            {**CARD, "id": "small"},
            {**CARD, "id": "sql", "root": "/adapters/sql", "parent": "tiny"},
        ]
    },
    "/version": {"version": "0.32.0"},
    "/tokenize": {"count": 1, "max_model_len": 512, "tokens": [7]},
    "/kv_event_sources": {
        "1": {"endpoint": "tcp://*:5558", "replay_endpoint": "tcp://*:6558"},
        "0": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:6557"},
    },
    "/metrics": VLLM_METRICS,
}
SGLANG: dict[str, Any] = {
    "/v1/models": {"data": [{**CARD, "id": "tiny"}]},
    "/server_info": {
        "page_size": 64,
        "dp_size": 1,
        "max_total_num_tokens": 4096,
        "version": "0.5.23",
        "kv_events_config": '{"publisher": "zmq", "endpoint": "tcp://*:5557", "topic": "kv-events"}',
        "model_path": "/models/tiny",
    },
    "/tokenize": {"count": 1, "max_model_len": 512, "tokens": [7]},
    "/metrics": "sglang:num_running_reqs 0.0\n",
}


def answering(answers: dict[str, Any]) -> Answerer:
    def answer(_method: str, path: str, _headers: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        reply = answers.get(path, 404)
        if isinstance(reply, int):
            return reply, b"{}"
        return 200, reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()

    return answer


async def asked(answers: dict[str, Any]) -> ConnectedEngineFacts:
    with http_server(answering(answers), types={"/metrics": "text/plain"}) as (url, _):
        return await at(url)


async def at(url: str) -> ConnectedEngineFacts:
    return await ask_engine(CheckedUrl(url, url, "127.0.0.1", 1), bearer="", variable="HEADWAY_ENGINE_API_KEY")


async def test_vllm_reports_names_adapters_blocks_ranks_and_sockets() -> None:
    facts = await asked(VLLM)
    assert (facts.product, facts.version) == ("vLLM", "0.32.0")
    assert (facts.names, facts.adapters, facts.weights) == (("tiny", "small"), ("sql",), "/models/tiny")
    assert (facts.block_tokens, facts.kv_tokens, facts.context_tokens, facts.ranks) == (32, 992, 512, 2)
    assert (facts.events, facts.replay) == ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:6557")
    assert facts.tokenizes


async def test_sglang_reports_page_size_and_socket_in_its_arguments() -> None:
    facts = await asked(SGLANG)
    assert (facts.product, facts.version, facts.names) == ("SGLang", "0.5.23", ("tiny",))
    assert (facts.block_tokens, facts.kv_tokens, facts.ranks) == (64, 4096, 1)
    assert (facts.events, facts.replay) == ("tcp://127.0.0.1:5557", "")


async def test_sglang_reports_its_prefill_or_decode_role() -> None:
    for mode, role in (("prefill", "prefill"), ("decode", "decode"), ("null", "mixed")):
        answers = {**SGLANG, "/server_info": {**SGLANG["/server_info"], "disaggregation_mode": mode}}
        assert (await asked(answers)).role == role


async def test_older_sglang_responds_under_its_older_path() -> None:
    old = {("/get_server_info" if path == "/server_info" else path): answer for path, answer in SGLANG.items()}
    assert (await asked(old)).block_tokens == 64


async def test_preflight_uses_the_page_size_of_sglang_as_block_size() -> None:
    with http_server(answering({**SGLANG, "/health": ""}), types={"/metrics": "text/plain"}) as (url, _):
        rules = EngineUrlRules((), allow_loopback=True)
        subject = PreflightSubject(url, url, "tiny", True, 64, 512, rules=rules)
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            steps = {step.key: step async for step in EnginePreflight(subject, session).run()}
    assert steps["block_size"].sentence == "Block size 64, same as the pool's."
    assert "metrics are not read" in steps["block_size"].remedy
    assert "--kv-events-config" in steps["events"].remedy


async def test_preflight_rejects_several_ranks_without_a_number_and_accepts_a_numbered_one() -> None:
    with http_server(answering({**VLLM, "/health": ""}), types={"/metrics": "text/plain"}) as (url, _):
        rules = EngineUrlRules((), allow_loopback=True)
        results = []
        for rank in (None, 1):
            subject = PreflightSubject(url, url, "tiny", True, 32, 512, rules=rules, rank=rank)
            async with aiohttp.ClientSession(auto_decompress=False) as session:
                results.append({step.key: step async for step in EnginePreflight(subject, session).run()})
    whole, second = results
    assert "2 data-parallel ranks" in whole["block_size"].sentence
    assert whole["block_size"].remedy == f"Register each rank: {url}#0 to {url}#1."
    assert second["block_size"].sentence == "Block size 32, same as the pool's."
    assert "tcp://127.0.0.1:5558" in second["events"].sentence, "its own socket"


async def test_unreported_facts_stay_unknown() -> None:
    facts = await asked({"/v1/models": {"data": [{"id": "tiny"}]}})
    assert (facts.product, facts.block_tokens, facts.events, facts.tokenizes) == ("", None, "", False)
    assert facts.names == ("tiny",)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"/v1/models": 401}, "requires another key"),
        ({"/v1/models": 404}, "does not answer as an engine: models answered 404"),
        ({"/v1/models": "<html>"}, "does not answer as an engine"),
        ({"/v1/models": {"data": []}}, "it serves no model"),
    ],
)
async def test_unsupported_server_is_rejected_with_a_remedy(answers: dict[str, Any], words: str) -> None:
    with pytest.raises(ConnectRejectedError, match=words) as rejected:
        await asked(answers)
    assert rejected.value.remedy


async def test_address_without_a_listener_is_reported() -> None:
    with pytest.raises(ConnectRejectedError, match="connection refused"):
        await at(f"http://127.0.0.1:{free_ports(1)[0]}")


@pytest.mark.parametrize("replays", [True, False])
async def test_sockets_that_vllm_does_not_report_are_probed_at_the_usual_ports(
    monkeypatch: pytest.MonkeyPatch, replays: bool
) -> None:
    events, replay = free_ports(2)
    monkeypatch.setattr(preflight_events, "usual_ports", lambda url: [(free_ports(1)[0], replay), (events, replay)])
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher, context.socket(zmq.ROUTER) as router:
        publisher.bind(f"tcp://127.0.0.1:{events}")
        if replays:
            router.bind(f"tcp://127.0.0.1:{replay}")
        one_rank = "".join(line for line in VLLM_METRICS.splitlines(True) if 'engine="1"' not in line)
        facts = await asked({**VLLM, "/kv_event_sources": 404, "/metrics": one_rank})
    assert facts.events == f"tcp://127.0.0.1:{events}"
    assert facts.replay == (f"tcp://127.0.0.1:{replay}" if replays else "")
    assert not facts.reports_sockets


async def test_listener_at_a_usual_port_that_is_not_a_publisher_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, replay = free_ports(2)
    monkeypatch.setattr(preflight_events, "usual_ports", lambda url: [(events, replay)])
    monkeypatch.setattr(preflight_events, "HANDSHAKE_S", 0.2)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(f"tcp://127.0.0.1:{events}")
        facts = await asked({**VLLM, "/kv_event_sources": 404})
    assert (facts.events, facts.replay, facts.sockets) == ("", "", ())


async def test_start_command_of_vllm_has_all_reported_facts_and_the_flag() -> None:
    facts = await asked({**VLLM, "/kv_event_sources": {}})
    flag = events_flag("http://10.0.0.1:8000")
    line = start_line(facts, flag)
    assert line.startswith("vllm serve /models/tiny --served-model-name tiny small --port ")
    assert line.endswith(f"--max-model-len 512 --block-size 32 --enable-prompt-tokens-details {flag}")
    config = json.loads(flag.partition("'")[2].rstrip("'"))
    assert (config["endpoint"], config["replay_endpoint"]) == ("tcp://*:18000", "tcp://*:28000")
    assert config["enable_kv_cache_events"] is True


async def test_block_size_flag_occurs_once_in_the_start_command() -> None:
    line = start_line(await asked(SGLANG), block_size_flag(16, sglang=True))
    assert line.startswith("python -m sglang.launch_server --model-path /models/tiny")
    assert line.count("--page-size") == 1
    assert line.endswith("--page-size 16")


async def test_untrusted_certificate_error_names_the_setting(tmp_path: Path) -> None:
    async with tls_engine(certificates(tmp_path)) as url:
        with pytest.raises(ConnectRejectedError) as rejected:
            await at(url)
    assert rejected.value.sentence == f"Unreachable at {url}: certificate not trusted."
    assert "HEADWAY_ENGINE_CA" in rejected.value.remedy
