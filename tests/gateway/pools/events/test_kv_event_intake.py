"""The KV event intake over real ZMQ sockets, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import uvloop
import zmq.asyncio

from gateway.base.settings import EventSettings
from gateway.pools.events.event_ledger import BLIND, DEGRADED, EXACT, EventLedger
from gateway.pools.events.kv_event_intake import KvEventIntake
from kvstore.events.kv_events import BlockStored, EventBatch, encode_batch
from kvstore.keys.block_keys import token_block_keys
from tests.gateway.fake_engine import FakePublisher
from tests.gateway.pools.events.held_keys import Held
from tests.patience import until

SETTINGS = EventSettings(replay_timeout_s=0.3, verify_after_s=0.3, retry_min_s=0.02, retry_max_s=0.1, rebuild_blocks=4)


class Listening:
    """An intake connected to a publisher."""

    def __init__(self, publisher: FakePublisher, context: zmq.asyncio.Context, *, replay: bool = True) -> None:
        self.held = Held()
        self.publisher = publisher
        self.trusts: list[str] = []
        self.intake = KvEventIntake(
            "e1",
            publisher.endpoint,
            publisher.replay_endpoint if replay else "",
            EventLedger(self.held, lambda *_: 7, 2, SETTINGS),
            context,
            SETTINGS,
            lambda: self.trusts.append(self.intake.trust.grade),
        )
        self.task = asyncio.create_task(self.intake.run())

    def keys(self, *prompts: int) -> bool:
        """Return whether the index holds exactly these prompts."""
        return self.held.keys == {key(prompt) for prompt in prompts}


def key(prompt: int) -> int:
    return token_block_keys(7, [prompt, prompt], 2)[0]


def batch(prompt: int, ts: float = 0.0) -> bytes:
    return encode_batch(EventBatch(ts, [BlockStored([prompt], None, [prompt, prompt], 2)]))


@asynccontextmanager
async def listening(
    *, replay: bool = True, buffer: int = 10_000, topic_in_replay: bool = True, before: Sequence[int] = ()
) -> AsyncIterator[Listening]:
    context = zmq.asyncio.Context()
    publisher = FakePublisher(context, buffer=buffer, topic_in_replay=topic_in_replay)
    for prompt in before:
        await publisher.publish(batch(prompt))
    running = Listening(publisher, context, replay=replay)
    try:
        yield running
    finally:
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)
        await publisher.close()
        context.destroy(linger=0)


async def it_brings_back_a_warm_cache_and_follows() -> None:
    async with listening(before=[1, 2, 3]) as running:
        await until(lambda: running.keys(1, 2, 3))
        assert running.intake.trust.grade == EXACT
        await asyncio.sleep(0.2)
        for prompt in range(4, 200):
            await running.publisher.publish(batch(prompt))
        await until(lambda: running.keys(*range(1, 200)))
        assert running.publisher.replays[0] == 0


async def it_replays_a_gap() -> None:
    async with listening(before=[1]) as running:
        await until(lambda: running.keys(1))
        await asyncio.sleep(0.2)
        await running.publisher.publish(batch(2), lose=True)
        await running.publisher.publish(batch(3))
        await until(lambda: running.keys(1, 2, 3))
        assert running.intake.ledger.counts["lost"] == 0


async def it_finds_a_lost_last_batch_by_itself() -> None:
    async with listening(before=[1]) as running:
        await until(lambda: running.keys(1))
        await running.publisher.publish(batch(2), lose=True)
        await until(lambda: running.keys(1, 2))


async def it_finds_a_silent_restart_by_itself() -> None:
    async with listening(before=[1, 2]) as running:
        await until(lambda: running.keys(1, 2))
        running.publisher.restart()
        await running.publisher.publish(batch(9, 1.0), lose=True)
        await until(lambda: running.held.restarts == 1 and running.keys(9))
        assert running.intake.trust.grade == EXACT


async def it_survives_garbage_frames() -> None:
    async with listening(before=[1]) as running:
        await until(lambda: running.keys(1))
        await asyncio.sleep(0.2)
        await running.publisher.send_raw(b"only one frame")
        await running.publisher.send_raw(b"", b"short", b"x")
        await running.publisher.publish(b"\xc1 not msgpack")
        await running.publisher.publish(batch(2))
        await until(lambda: running.keys(1, 2))
        assert running.intake.ledger.counts["unreadable"] >= 1
        assert running.intake.trust.grade == DEGRADED


async def it_loses_a_history_that_the_buffer_dropped_and_does_not_loop() -> None:
    async with listening(before=[1], buffer=3) as running:
        await until(lambda: running.keys(1))
        for prompt in range(2, 12):
            await running.publisher.publish(batch(prompt), lose=True)
        await until(lambda: key(11) in running.held.keys)
        assert key(1) not in running.held.keys
        assert running.intake.ledger.counts["lost"] == 1
        await asyncio.sleep(0.5)
        assert running.intake.ledger.counts["lost"] == 1


CASES = [
    it_brings_back_a_warm_cache_and_follows,
    it_replays_a_gap,
    it_finds_a_lost_last_batch_by_itself,
    it_finds_a_silent_restart_by_itself,
    it_survives_garbage_frames,
    it_loses_a_history_that_the_buffer_dropped_and_does_not_loop,
]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_events_over_sockets_reach_the_index(
    case: Callable[[], Awaitable[None]], run: Callable[[Awaitable[None]], None]
) -> None:
    run(case())


async def test_replies_without_topic_from_older_engines_are_understood() -> None:
    async with listening(before=[1], topic_in_replay=False) as running:
        await until(lambda: running.keys(1))


async def test_the_intake_is_blind_before_the_first_reply_and_degraded_during_silence() -> None:
    async with listening() as running:
        running.publisher.answers = False
        assert running.intake.trust.grade == BLIND
        await asyncio.sleep(0.5)
        assert running.intake.trust.grade == BLIND
        running.publisher.answers = True
        await until(lambda: running.intake.trust.grade == EXACT)
        running.publisher.answers = False
        await until(lambda: running.intake.trust.grade == DEGRADED)
        assert "does not answer" in running.intake.trust.reason
        running.publisher.answers = True
        await until(lambda: running.intake.trust.grade == EXACT)
        assert running.trusts == [EXACT, DEGRADED, EXACT]


async def test_without_a_replay_socket_the_intake_applies_live_batches() -> None:
    async with listening(replay=False) as running:
        await asyncio.sleep(0.3)
        for prompt in range(5):
            await running.publisher.publish(batch(prompt))
        await until(lambda: running.keys(0, 1, 2, 3, 4))
        assert running.intake.trust.grade == EXACT
        await running.publisher.publish(batch(5), lose=True)
        await running.publisher.publish(batch(6))
        await until(lambda: running.keys(6))
        assert running.intake.trust.grade == DEGRADED


async def test_a_resync_replays_from_the_start() -> None:
    async with listening(before=[1, 2]) as running:
        await until(lambda: running.keys(1, 2))
        running.held.cleared()
        running.intake.resync()
        await until(lambda: running.keys(1, 2))


def test_only_tcp_endpoints_are_accepted() -> None:
    ledger = EventLedger(Held(), lambda *_: 7, 2, SETTINGS)
    with zmq.asyncio.Context() as context, pytest.raises(ValueError, match="tcp://"):
        KvEventIntake("e1", "ipc:///run/secret", "", ledger, context, SETTINGS, lambda: None)
