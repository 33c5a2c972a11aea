"""The simulated engine in its SGLang flavor, read by the code that reads real SGLang."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import zmq
import zmq.asyncio

from bench.live.loopback_ports import free_port
from controlplane.fleet.connect.engine_facts import SGLANG, ask_engine
from controlplane.fleet.engine_url import CheckedUrl
from gateway.pools.engines.engine_metrics import parse_engine_metrics
from gateway.pools.engines.vllm_adapter import VllmAdapter
from kvstore.events.event_salt import domain_of
from kvstore.events.kv_events import BlockStored, decode_batch
from simulator.engine_models.engine_profile import EngineProfile
from tests.simulator.conftest import RunningEngine, StartEngine

PROFILE = EngineProfile(block_tokens=16, num_blocks=64, recompute_last_block=True)


async def _started(start_engine: StartEngine) -> RunningEngine:
    return await start_engine(flavor="sglang", profile=PROFILE, kv_events_port=free_port(), kv_replay_port=free_port())


async def _complete(engine: RunningEngine, **body: object) -> int:
    asked = {"model": "demo", "prompt": list(range(1, 70)), "max_tokens": 2, **body}
    async with engine.http.post(engine.url + "/v1/completions", json=asked) as answer:
        assert answer.status == 200
        return int((await answer.json())["usage"]["prompt_tokens_details"]["cached_tokens"])


async def test_connecting_recognizes_sglang_and_its_event_sockets(start_engine: StartEngine) -> None:
    engine = await _started(start_engine)
    address = CheckedUrl(engine.url, engine.url, "127.0.0.1", engine.settings.port)
    facts = await ask_engine(address, bearer="", variable="X")
    assert (facts.product, facts.names, facts.ranks) == (SGLANG, ("demo",), 1)
    assert (facts.block_tokens, facts.kv_tokens) == (16, 64 * 16)
    assert facts.events == f"tcp://127.0.0.1:{engine.settings.kv_events_port}"
    assert facts.replay == f"tcp://127.0.0.1:{engine.settings.kv_replay_port}"


async def test_sglang_load_and_metrics_are_read_and_contain_no_vllm_names(start_engine: StartEngine) -> None:
    engine = await _started(start_engine)
    await _complete(engine)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        adapter = VllmAdapter(session, engine.url, timeout_s=30.0)
        load = await adapter.load()
        await adapter.health()
    assert (load.running, load.waiting) == (0, 0)
    async with engine.http.get(engine.url + "/metrics") as answer:
        text = await answer.read()
    metrics = parse_engine_metrics(text)
    assert (metrics.prompt_tokens_total, metrics.generated_tokens_total, metrics.kv_tokens) == (69, 2, 64 * 16)
    assert b"vllm" not in text


async def test_sglang_events_have_signed_hashes_and_the_salt_in_a_field(start_engine: StartEngine) -> None:
    engine = await _started(start_engine)
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(f"tcp://127.0.0.1:{engine.settings.kv_replay_port}")
        for number in range(8):
            assert await _complete(engine, prompt=[number] * 70, cache_salt="a") == 0
        assert await _complete(engine, prompt=[0] * 70, cache_salt="a") == 64
        await socket.send_multipart([b"", (0).to_bytes(8, "big")])
        events = []
        while (frames := await asyncio.wait_for(socket.recv_multipart(), 60))[-1]:
            events += decode_batch(frames[-1]).events
    stored = [item for item in events if isinstance(item, BlockStored)]
    hashes = [block_hash_ for event in stored for block_hash_ in event.block_hashes]
    assert min(hashes) < 0 < max(hashes)
    assert max(map(abs, hashes)) < 1 << 63
    assert {domain_of(item) for item in stored if item.parent_block_hash is None} == {"a"}
    assert all(msgspec.structs.asdict(item)["extra_keys"] is None for item in stored)
