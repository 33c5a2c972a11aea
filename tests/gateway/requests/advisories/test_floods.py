"""A flood of advisories is shed by key before it delays any request; spurious sources lose their prefetches."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.contracts.advisory import Advisory
from gateway.requests.advisories.source_limits import BURST, TOKEN_SHARE
from tests.gateway.kv.nodes.test_loads_end_to_end import Fleet, a_node, serving
from tests.gateway.requests.advisories.test_advisories_end_to_end import (
    ADVISORIES,
    TOKENS,
    advise,
    asked,
    first_turn_on_engine_0,
    policy,
)
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import OTHER_KEY, served


class Clock:
    """A clock that moves only when set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def flood(fleet: Fleet, calls: int) -> list[int]:
    """Send advisories of another tenant for sessions that it does not have."""
    return [(await fleet.gateway.post(ADVISORIES, {"session_id": f"x-{n}"}, key=OTHER_KEY))[0] for n in range(calls)]


async def test_a_flood_of_one_tenant_is_shed_and_others_are_served(tmp_path: Path) -> None:
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


async def test_a_flooding_page_leaves_its_key_and_other_pages_their_allowance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("gateway.api.advisory_api.monotonic", clock)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        gateway.gateway.advisories._clock = clock
        tokens = [(await gateway.post(TOKENS, {"session_id": f"s-{n}"}, key=OTHER_KEY))[1]["token"] for n in range(2)]

        async def sent(count: int, **fields: str) -> list[int]:
            key = None if fields else OTHER_KEY
            body = fields or {"session_id": "s-0"}
            return [(await gateway.post(ADVISORIES, body, key=key))[0] for _ in range(count)]

        flood = await sent(int(2 * BURST), token=tokens[0])
        assert flood.count(202) == TOKEN_SHARE * BURST
        assert flood.count(429) == len(flood) - flood.count(202)
        assert set(await sent(5, token=tokens[1])) == set(await sent(20)) == {202}
        headers = {"authorization": f"Bearer {tokens[0]}"}
        async with gateway.client.get(f"{gateway.url}{ADVISORIES}/s-0", headers=headers) as answer:
            assert answer.status == 429
            assert int(answer.headers["retry-after"]) >= 1


async def test_an_overloaded_gateway_sheds_all_advisories_and_serves_requests(tmp_path: Path) -> None:
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


async def test_sources_of_advisories_without_requests_lose_their_moves(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)
            advisories, clock = fleet.gateway.gateway.advisories, Clock()
            advisories._clock = clock
            advisory = Advisory(tenant_id="tenant-a", session_id="s-1", source="ka")
            assert advisories.advise(advisory) == "prefetching"
            for _ in range(3):
                advisories.advise(advisory)
                clock.now += 100.0
                advisories.sweep()
            assert len(advisories) == 0
            assert fleet.gateway.gateway.metrics.advisories.value("pool", "spurious") == 3
            assert advisories.advise(advisory) == "reserved", "three in a row: nothing moves any more"
            assert advisories.limits.trust("tenant-a", "ka", clock.now).useful_share < 0.8
