from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq
import zmq.asyncio

from bench.live.loopback_ports import free_port
from kvstore.events.engine_block_map import EngineBlockMap
from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, decode_batch
from kvstore.keys.block_keys import key_seed, token_block_keys
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.event_publisher import EventPortTakenError, EventPublisher
from simulator.engine_server.settings import EngineSettings
from tests.patience import PATIENCE_S
from tests.simulator.conftest import RunningEngine, StartEngine

_PROFILE = EngineProfile(block_tokens=16, num_blocks=8, recompute_last_block=True)


@pytest.fixture
def context() -> Iterator[zmq.asyncio.Context]:
    with zmq.asyncio.Context() as context:
        yield context


@pytest.fixture
async def engine(start_engine: StartEngine) -> RunningEngine:
    return await start_engine(kv_events_port=free_port(), kv_replay_port=free_port(), profile=_PROFILE)


async def _ask(engine: RunningEngine, prompt: str, **more: object) -> None:
    body = {"prompt": prompt, "max_tokens": 1, **more}
    async with engine.http.post(engine.url + "/v1/completions", json=body) as response:
        assert response.status == 200


async def _replay(context: zmq.asyncio.Context, settings: EngineSettings, start: int) -> list[tuple[bytes, int, bytes]]:
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(f"tcp://127.0.0.1:{settings.kv_replay_port}")
        await dealer.send_multipart([b"", start.to_bytes(8, "big")])
        batches = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                empty, topic, number, payload = await dealer.recv_multipart()
                assert empty == b""
                if number == b"\xff" * 8:
                    assert payload == b""
                    return batches
                batches.append((topic, int.from_bytes(number, "big"), payload))


async def test_subscribers_get_topic_sequence_and_payload_from_zero_on(
    engine: RunningEngine, context: zmq.asyncio.Context
) -> None:
    with context.socket(zmq.SUB) as subscriber:
        subscriber.connect(f"tcp://127.0.0.1:{engine.settings.kv_events_port}")
        subscriber.subscribe(b"kv@")
        await asyncio.sleep(0.3)
        await _ask(engine, "a" * 128)
        await _ask(engine, "b" * 128)
        async with asyncio.timeout(PATIENCE_S):
            frames = [await subscriber.recv_multipart() for _ in range(2)]
    assert [frame[0] for frame in frames] == [engine.settings.topic.encode()] * 2
    assert [int.from_bytes(frame[1], "big") for frame in frames] == [0, 1]
    batch = decode_batch(frames[0][2])
    assert batch.data_parallel_rank == 0
    stored = batch.events[0]
    assert isinstance(stored, BlockStored)
    assert (len(stored.block_hashes), stored.block_size, stored.parent_block_hash) == (2, 16, None)


async def test_event_hashes_match_tokenize_and_our_keys(engine: RunningEngine, context: zmq.asyncio.Context) -> None:
    prompts = ["c" * 256, "c" * 256 + "d" * 128, "e" * 100]
    seed = key_seed(b"our own secret", "demo")
    ours: set[int] = set()
    for prompt in prompts:
        await _ask(engine, prompt)
        async with engine.http.post(engine.url + "/tokenize", json={"prompt": prompt}) as response:
            ours.update(token_block_keys(seed, (await response.json())["tokens"], 16))
    known, keys, hashes = EngineBlockMap(), set(), set()
    for _, _, payload in await _replay(context, engine.settings, 0):
        for event in decode_batch(payload).events:
            assert isinstance(event, BlockStored)
            keys.update(known.stored(event, seed))
            hashes.update(event.block_hashes)
    assert keys == ours
    assert hashes.isdisjoint(ours), "the engine's own hashes are seeded otherwise"


async def test_evicted_blocks_are_removed_one_by_one_before_their_replacements_are_stored(
    engine: RunningEngine, context: zmq.asyncio.Context
) -> None:
    await _ask(engine, "f" * 64 * 6)
    await _ask(engine, "g" * 64 * 5)
    batches = await _replay(context, engine.settings, 1)
    events = decode_batch(batches[0][2]).events
    assert [type(event) for event in events] == [BlockRemoved, BlockRemoved, BlockRemoved, BlockStored]
    assert [len(event.block_hashes) for event in events] == [1, 1, 1, 5]


async def test_the_indexed_blocks_equal_the_cached_ones_after_many_evictions(
    engine: RunningEngine, context: zmq.asyncio.Context
) -> None:
    for number in range(12):
        await _ask(engine, "h" * 64 + str(number % 5) * 64 * (1 + number % 4))
    known, keys = EngineBlockMap(), set()
    for _, _, payload in await _replay(context, engine.settings, 0):
        for event in decode_batch(payload).events:
            if isinstance(event, BlockStored):
                keys.update(known.stored(event, 1))
            elif isinstance(event, BlockRemoved):
                keys.difference_update(known.removed(event))
    assert len(keys) == engine.server.runtime.model.cached_blocks
    assert known.orphans == 0


async def test_replay_starts_at_the_requested_number_and_ends_with_a_marker(
    engine: RunningEngine, context: zmq.asyncio.Context
) -> None:
    for letter in "ijkl":
        await _ask(engine, letter * 128)
    assert [number for _, number, _ in await _replay(context, engine.settings, 2)] == [2, 3]
    assert await _replay(context, engine.settings, 99) == []
    topics = {topic for topic, _, _ in await _replay(context, engine.settings, 0)}
    assert topics == {engine.settings.topic.encode()}


async def test_a_reset_is_published_with_the_next_batch(engine: RunningEngine, context: zmq.asyncio.Context) -> None:
    await _ask(engine, "m" * 128)
    async with engine.http.post(engine.url + "/reset_prefix_cache") as response:
        assert (await response.json())["success"]
    assert len(await _replay(context, engine.settings, 0)) == 1
    await _ask(engine, "m" * 128)
    events = decode_batch((await _replay(context, engine.settings, 1))[0][2]).events
    assert [type(event) for event in events] == [AllBlocksCleared, BlockStored]


async def test_a_malformed_replay_request_is_ignored(engine: RunningEngine, context: zmq.asyncio.Context) -> None:
    await _ask(engine, "n" * 128)
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(f"tcp://127.0.0.1:{engine.settings.kv_replay_port}")
        await dealer.send_multipart([b"", b"short"])
        await dealer.send_multipart([b"x"])
        await dealer.send_multipart([b"", (0).to_bytes(8, "big")])
        async with asyncio.timeout(PATIENCE_S):
            frames = await dealer.recv_multipart()
    assert int.from_bytes(frames[2], "big") == 0


async def test_only_the_newest_batches_are_retained(context: zmq.asyncio.Context) -> None:
    settings = EngineSettings(kv_events_port=free_port(), kv_replay_port=free_port(), buffer_steps=3)
    publisher = EventPublisher(settings)
    loop = asyncio.get_running_loop()
    publisher.serve_replay(loop)
    for number in range(10):
        publisher.publish([BlockStored([number], None, [1], 1)])
    batches = await _replay(context, settings, 0)
    publisher.close(loop)
    assert [number for _, number, _ in batches] == [7, 8, 9]
    assert all(isinstance(decode_batch(payload), EventBatch) for _, _, payload in batches)


def test_a_taken_port_is_reported_with_advice() -> None:
    settings = EngineSettings(kv_events_port=free_port())
    first = EventPublisher(settings)
    with pytest.raises(EventPortTakenError, match=f"{settings.kv_events_port}.*choose another"):
        EventPublisher(settings)
    first.close()
