"""R1, R6, R15: decisions continue while gateways are killed, Redis is flushed, and policies are published nonstop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import redis as redis_client

from bench.live.decision_history import DecisionHistory, figures
from bench.live.live_fleet import MODEL
from gateway.bus.redis_bus import RedisBus
from gateway.gateway import SNAPSHOT_TOPIC
from kvstore.keys.keyring import Keyring
from tests.hard_edges.gateway_fleet import API_KEY, SECRET, GatewayFleet, gateway_fleet
from tests.patience import until, wait_until
from tests.private_redis import private_redis

pytestmark = [pytest.mark.processes, pytest.mark.thorough]

CALLERS = 6
PUBLISH_PAUSE_S = 0.3
"""Makes 200 publishes a minute."""
WITHIN = 6
"""Publishes in two seconds."""


@asynccontextmanager
async def deciding(fleet: GatewayFleet) -> AsyncIterator[DecisionHistory]:
    """Request decisions through a balancer during the block, and wait for all responses at its end."""
    history, stop = DecisionHistory(fleet.urls, API_KEY, MODEL), asyncio.Event()
    asking = asyncio.create_task(history.run(CALLERS, stop))
    yield history
    stop.set()
    await asking


def more_than(history: DecisionHistory, count: int) -> Callable[[], bool]:
    """Return a condition that holds after `count` more decisions."""
    wanted = len(history.decided) + count
    return lambda: len(history.decided) > wanted


async def test_killed_gateways_lose_no_decision_and_only_those_in_flight_are_retried(tmp_path: Path) -> None:
    kills, away = (0, 1, 0), []
    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        async with deciding(fleet) as history:
            await until(more_than(history, 100))
            for position in kills:
                begin_s = history.now()
                await asyncio.to_thread(fleet.kill, position)
                await until(more_than(history, 100))
                await asyncio.to_thread(fleet.restart, position)
                away.append((begin_s, history.now()))
                await until(more_than(history, 100))
    counts = figures(history.decided, away)
    assert counts["decisions"] > 100 * 2 * len(kills)
    assert counts["decisions_lost"] == counts["decisions_rejected"] == 0
    assert 0 < counts["decisions_asked_again"] <= CALLERS * len(kills)
    assert counts["reports_not_taken"] <= 2 * CALLERS * len(kills), "those of decisions whose gateway was killed"
    assert len({item.decision_id for item in history.decided}) == len(history.decided)


async def test_flushed_redis_is_refilled_without_a_lost_decision(tmp_path: Path) -> None:
    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        async with deciding(fleet) as history:
            for _ in range(3):
                await until(more_than(history, 50))
                with redis_client.Redis.from_url(redis.url) as client:
                    client.flushall()
            newcomer = RedisBus(redis.url, Keyring.of(SECRET.encode()))
            await until(lambda: newcomer.latest(SNAPSHOT_TOPIC) is not None)
            newcomer.close()
            fleet.publish(2)
            await asyncio.to_thread(wait_until, lambda: fleet.versions() == [2, 2])
        counts = figures(history.decided, [])
        assert counts["decisions_lost"] == counts["decisions_rejected"] == counts["decisions_asked_again"] == 0
        assert counts["reports_not_taken"] == 0
        for position in (0, 1):
            events = [json.loads(line) for line in fleet.log(position).splitlines()]
            assert [event for event in events if event["level"] in ("error", "critical")] == []
            lost = [event["reason"] for event in events if event.get("event") == "bus_lost"]
            assert set(lost) <= {"TimeoutError"}, "a flush ends no connection; a busy machine may answer late"


async def test_200_policies_a_minute_reach_all_gateways_within_two_seconds(tmp_path: Path) -> None:
    """Time is counted in publishes, because a busy machine slows publishing and following alike."""
    stale: list[tuple[int, int]] = []
    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        async with deciding(fleet) as history, aiohttp.ClientSession() as session:
            seen = [1, 1]
            for version in range(2, 40):
                await asyncio.to_thread(fleet.publish, version)
                await asyncio.sleep(PUBLISH_PAUSE_S)
                for position, url in enumerate(fleet.urls):
                    body = {"model": MODEL, "token_ids": [version] * 64, "wait": False}
                    headers = {"Authorization": f"Bearer {API_KEY}"}
                    async with session.post(f"{url}/api/v1/route", json=body, headers=headers) as answer:
                        decided = (await answer.json())["policy_version"]
                    assert seen[position] <= decided <= version
                    seen[position] = decided
                    if decided < version - WITHIN:
                        stale.append((version, decided))
            await asyncio.to_thread(wait_until, lambda: fleet.versions() == [39, 39])
    assert stale == []
    counts = figures(history.decided, [])
    assert [item.why for item in history.decided if item.why] == []
    assert counts["decisions_lost"] == counts["decisions_rejected"] == counts["reports_not_taken"] == 0
