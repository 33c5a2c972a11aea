"""A flood of advisories is shed by key, before any request is delayed; spurious sources lose their prefetches."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gateway.advisories.source_limits import BURST
from gateway.contracts.advisory import Advisory
from tests.gateway.advisories.test_advisories_end_to_end import (
    ADVISORIES,
    advise,
    asked,
    first_turn_on_engine_0,
    policy,
)
from tests.gateway.kv_nodes.test_loads_end_to_end import Fleet, a_node, serving
from tests.gateway.served_gateway import OTHER_KEY


class Clock:
    """Stands still until it is told otherwise."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def flood(fleet: Fleet, calls: int) -> list[int]:
    """Send advisories of another tenant for sessions that it has not."""
    return [(await fleet.gateway.post(ADVISORIES, {"session_id": f"x-{n}"}, key=OTHER_KEY))[0] for n in range(calls)]


async def test_a_flood_is_shed_and_others_are_served(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)
            fleet.gateway.gateway.advisories._clock = Clock()
            statuses = await flood(fleet, int(2 * BURST))
            assert statuses.count(202) <= BURST
            assert statuses.count(429) == len(statuses) - statuses.count(202)
            fleet.gateway.gateway.advisories._clock = time.monotonic
            status, answer = await advise(fleet)
            while status == 429:
                await asyncio.sleep(0.2)
                status, answer = await advise(fleet)
            assert (status, answer["state"]) == (202, "prefetching"), "another key is not limited by the flood"
            assert len(fleet.gateway.gateway.advisories.sessions) == 1
            assert (await asked(fleet)).outcome == "completed"


async def test_a_gateway_that_is_behind_sheds_all_advisories_and_serves_requests(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)

            class Behind:
                behind = True

            fleet.gateway.gateway.advisories._lag = Behind()  # type: ignore[assignment]  # all that is asked of it
            status, answer = await advise(fleet)
            assert (status, answer["error"]["code"]) == (429, "advisory_shed")
            assert fleet.gateway.gateway.metrics.advisories.value("pool", "shed") == 1
            assert (await asked(fleet)).outcome == "completed"


async def test_advisories_that_nobody_follows_are_spurious_and_lose_their_moves(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)
            advisories, clock = fleet.gateway.gateway.advisories, Clock()
            advisories._clock = clock
            told = Advisory(tenant_id="tenant-a", session_id="s-1", source="ka")
            assert advisories.advise(told) == "prefetching"
            for _ in range(3):
                advisories.advise(told)
                clock.now += 100.0
                advisories.sweep()
            assert len(advisories) == 0
            assert fleet.gateway.gateway.metrics.advisories.value("pool", "spurious") == 3
            assert advisories.advise(told) == "reserved", "three in a row: nothing moves any more"
            assert advisories.limits.trust("tenant-a", "ka", clock.now).useful_share < 0.8
