"""R5: gateways follow snapshots over Redis, lose no request while it is down, and receive the next snapshot later."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from bench.live.live_fleet import MODEL
from tests.hard_edges.gateway_fleet import API_KEY, GatewayFleet, gateway_fleet, metrics_of
from tests.patience import until, wait_until
from tests.private_redis import private_redis

pytestmark = pytest.mark.processes


class Traffic:
    """Sends a request every 20 ms, to all gateways in turn, until it is stopped."""

    def __init__(self, fleet: GatewayFleet) -> None:
        self._fleet = fleet
        self._stopped = False
        self.statuses: list[int] = []

    async def run(self) -> None:
        """Send until `stop`; raise if a response does not arrive."""
        headers = {"Authorization": f"Bearer {API_KEY}"}
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Go on. " * 20}], "max_tokens": 3}
        async with aiohttp.ClientSession(headers=headers) as session:
            while not self._stopped:
                url = self._fleet.urls[len(self.statuses) % 2]
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    await answer.read()
                    self.statuses.append(answer.status)
                await asyncio.sleep(0.02)

    def stop(self) -> None:
        """Stop after the request in flight."""
        self._stopped = True


async def test_gateways_survive_a_redis_outage_and_their_own_restart(tmp_path: Path) -> None:
    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        fleet.publish(2)
        await asyncio.to_thread(wait_until, lambda: fleet.versions() == [2, 2])
        traffic = Traffic(fleet)
        sending = asyncio.create_task(traffic.run())
        await asyncio.sleep(0.3)
        redis.kill()
        await until(lambda: all("bus_lost" in fleet.log(position) for position in (0, 1)))
        assert "headway_bus_connected 0.0" in await asyncio.to_thread(metrics_of, fleet.urls[0])
        sent = len(traffic.statuses)
        await until(lambda: len(traffic.statuses) >= sent + 20)
        traffic.stop()
        await sending
        assert set(traffic.statuses) == {200}

        # A gateway that starts without Redis serves its last-known-good snapshot.
        await asyncio.to_thread(fleet.restart, 1)
        assert fleet.versions() == [2, 2]
        fleet.publish(3)
        redis.start()
        await asyncio.to_thread(wait_until, lambda: fleet.versions() == [3, 3])
        metrics = await asyncio.to_thread(metrics_of, fleet.urls[0])
        assert "headway_bus_connected 1.0" in metrics
        assert "headway_bus_connections_total 2.0" in metrics
        for position in (0, 1):
            events = [json.loads(line) for line in fleet.log(position).splitlines()]
            assert {"bus_lost", "bus_connected", "snapshot_applied"} <= {event.get("event") for event in events}


def test_gateway_publishes_only_under_its_own_topics(tmp_path: Path) -> None:
    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        topics: set[str] = set()
        fleet.bus.subscribe("gateways/", lambda topic, _: topics.add(topic))
        wait_until(lambda: sum(topic.endswith("/fleet") for topic in topics) == 2)
        assert all(topic.endswith(("/fleet", "/peer")) for topic in topics)
        assert fleet.bus.latest("fleet") is None


def test_every_gateway_connected_to_redis_rejects_a_revoked_key(tmp_path: Path) -> None:
    def statuses() -> list[int]:
        body = {"model": MODEL, "token_ids": [1] * 64, "wait": False}
        return [asyncio.run(status_of(url, body)) for url in fleet.urls]

    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        fleet.publish(2, revoked=True)
        wait_until(lambda: statuses() == [401, 401])
        fleet.publish(3)
        wait_until(lambda: statuses() == [200, 200])
        # Without Redis, gateways do not receive the revocation: the key works until Redis is back.
        redis.kill()
        wait_until(lambda: all("bus_lost" in fleet.log(position) for position in (0, 1)))
        fleet.publish(4, revoked=True)
        assert statuses() == [200, 200]
        redis.start()
        wait_until(lambda: statuses() == [401, 401])


async def status_of(url: str, body: dict[str, object]) -> int:
    headers = {"Authorization": f"Bearer {API_KEY}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/api/v1/route", json=body, headers=headers) as answer,
    ):
        return answer.status
