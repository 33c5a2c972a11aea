"""The intake accepts events of older engines: positional fields, and replays without topic or delimiter."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import zmq.asyncio

from gateway.base.settings import EventSettings
from gateway.pools.events.event_ledger import DEGRADED, EXACT, EventLedger
from gateway.pools.events.kv_event_intake import KvEventIntake
from kvstore.keys.block_keys import token_block_keys
from tests.gateway.pools.events.held_keys import Held
from tests.patience import until

SETTINGS = EventSettings(replay_timeout_s=0.5, verify_after_s=0.3, retry_min_s=0.02, retry_max_s=0.1, rebuild_blocks=4)
END = b"\xff" * 8


def payload(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events), 0])


def stored(prompt: int, *more: Any) -> list[Any]:
    return ["BlockStored", [-prompt], None, [prompt, prompt], 2, *more]


def key(prompt: int) -> int:
    return token_block_keys(7, [prompt, prompt], 2)[0]


def ledger_of(*payloads: bytes) -> tuple[EventLedger, Held]:
    held = Held()
    ledger = EventLedger(held, lambda *_: 7, 2, SETTINGS)
    ledger.start_replay()
    for number, payload in enumerate(payloads):
        ledger.replayed(number, payload)
    ledger.end_replay()
    return ledger, held


def test_positional_events_reach_the_index() -> None:
    ledger, held = ledger_of(
        payload(stored(1), stored(2, None, "GPU", {"session_id": "s"})), payload(["BlockRemoved", [-1]])
    )
    assert held.keys == {key(2)}
    assert ledger.trust.grade == EXACT


@pytest.mark.parametrize("more", [(7,), (None, "CPU_PINNED"), (7, "CPU", "sql")])
def test_blocks_that_our_requests_cannot_hit_are_not_indexed(more: tuple[Any, ...]) -> None:
    assert ledger_of(payload(stored(1, *more)))[1].keys == set()


def test_token_pairs_lower_the_trust_with_a_reason() -> None:
    ledger, held = ledger_of(payload(["BlockStored", [1], None, [[1, 2], [2, 3]], 2]))
    assert held.keys == set()
    assert ledger.trust.grade == DEGRADED
    assert "EAGLE" in ledger.trust.reason


@pytest.mark.parametrize("before", [[b"", b"kv@x@m"], [b""], []], ids=["topic", "no topic", "no delimiter"])
async def test_replays_are_read_with_and_without_the_leading_frames(before: list[bytes]) -> None:
    context = zmq.asyncio.Context()
    router, publisher = context.socket(zmq.ROUTER), context.socket(zmq.PUB)
    replay_port, port = router.bind_to_random_port("tcp://127.0.0.1"), publisher.bind_to_random_port("tcp://127.0.0.1")
    held = Held()
    endpoints = (f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{replay_port}")
    intake = KvEventIntake(
        "e", *endpoints, EventLedger(held, lambda *_: 7, 2, SETTINGS), context, SETTINGS, lambda: None
    )

    async def answer() -> None:
        while True:
            client, *_ = await router.recv_multipart()
            await router.send_multipart([client, *before, (0).to_bytes(8, "big"), payload(stored(1), stored(2))])
            await router.send_multipart([client, *before, END, b""])

    tasks = [asyncio.create_task(answer()), asyncio.create_task(intake.run())]
    try:
        await until(lambda: held.keys == {key(1), key(2)} and intake.trust.grade == EXACT)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        context.destroy(linger=0)
