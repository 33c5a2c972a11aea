"""Engines whose streams report no loads, behind two gateways: the owner still learns what its moves were worth."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from planning.kv_moves.kv_move import PREFETCH
from tests.gateway.kv.moves.test_orders_end_to_end import ONE_AT_A_TIME, orders
from tests.gateway.kv.nodes.loading_engine import BLOCK_BYTES
from tests.gateway.kv.nodes.test_loads_end_to_end import Fleet, body
from tests.gateway.requests.advisories.test_several_gateways import leave_out, two
from tests.patience import until

PREFETCHES = 10
COMPUTED = PREFETCHES + 1
"""Prompts that the first engine computes: one of them is to become hot."""


def prompt(number: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"prompt {number} of a session of its own, long enough for blocks; " * 4}]


async def streamed(fleet: Fleet, messages: list[dict[str, Any]]) -> None:
    await fleet.gateway.stream(body(messages=messages, stream=True, stream_options={"include_usage": True}))


async def test_streamed_prefetches_are_useful_and_hot_prefixes_are_replicated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path, monkeypatch, ONE_AT_A_TIME) as (owner, other):
        engine = owner.engines["engine-1"]
        await leave_out([owner, other], "engine-1")
        for number in range(COMPUTED):
            await streamed(other, prompt(number))
        computed = owner.engines["engine-0"].orders
        held = sum(len(set(order.routing_keys())) for order in computed)
        await until(lambda: owner.blocks("a") == other.blocks("a") == held)
        await leave_out([owner, other], "engine-0")
        engine.silent, holdings = True, owner.gateway.gateway.kv_nodes.holdings
        # On a busy machine, loads from the own node can seem slow, and a copy there would seem worthless.
        blocks = len(computed[0].routing_keys())
        for _ in range(30):
            owner.gateway.pool.loads.learned.loaded(
                "engine-1", "a", blocks, BLOCK_BYTES * blocks, 1.0, time.monotonic()
            )
        for number in range(PREFETCHES):
            engine.free.clear()
            sent = len(engine.orders)
            first = asyncio.create_task(streamed(other, prompt(COMPUTED + number)))
            await until(lambda sent=sent: len(engine.orders) > sent)  # type: ignore[misc]
            waiting = asyncio.create_task(streamed(other, prompt(number)))
            keys = computed[number].routing_keys()
            await until(lambda keys=keys: all(holdings.holds("b", key) for key in keys))  # type: ignore[misc]
            engine.free.set()
            await asyncio.gather(first, waiting)
        trust = owner.gateway.gateway.kv_moves.trust[PREFETCH]
        await until(lambda: trust.useful + trust.useless == PREFETCHES)
        assert orders(owner, "prefetch", "moved") == PREFETCHES
        assert (trust.useful, trust.useful_share >= 0.9) == (PREFETCHES, True)
        engine.node = ""
        for _ in range(3):
            await streamed(other, prompt(PREFETCHES))
        await until(lambda: orders(owner, "replicate", "moved") >= 1)
        assert orders(other, "prefetch", "moved") == orders(other, "replicate", "moved") == 0
