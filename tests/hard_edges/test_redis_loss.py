"""R5: gateways follow snapshots over Redis, lose no request while it is away, and hear the next snapshot again."""

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
    """Requests to all gateways in turn, one every 20 ms, until told to stop."""

    def __init__(self, fleet: GatewayFleet) -> None:
        self._fleet = fleet
        self._stopped = False
        self.statuses: list[int] = []

    async def run(self) -> None:
        """Send until `stop`; an answer that does not come raises."""
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
        """Let the request that runs be the last."""
        self._stopped = True


async def test_gateways_survive_the_loss_of_redis_and_of_themselves(tmp_path: Path) -> None:
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

        # A gateway that starts while nobody can tell it anything serves its last-known-good snapshot.
        await asyncio.to_thread(fleet.restart, 1)
        assert fleet.versions() == [2, 2]
        fleet.publish(3)
        redis.start()
        await asyncio.to_thread(wait_until, lambda: fleet.versions() == [3, 3])
        told = await asyncio.to_thread(metrics_of, fleet.urls[0])
        assert "headway_bus_connected 1.0" in told
        assert "headway_bus_connections_total 2.0" in told
        for position in (0, 1):
            events = [json.loads(line) for line in fleet.log(position).splitlines()]
            assert {"bus_lost", "bus_connected", "snapshot_applied"} <= {event.get("event") for event in events}


def test_what_a_gateway_publishes_is_its_own(tmp_path: Path) -> None:
    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        heard: set[str] = set()
        fleet.bus.subscribe("gateways/", lambda topic, _: heard.add(topic))
        wait_until(lambda: sum(topic.endswith("/fleet") for topic in heard) == 2)
        assert all(topic.endswith(("/fleet", "/peer")) for topic in heard)
        assert fleet.bus.latest("fleet") is None


def test_a_revoked_key_is_rejected_by_every_gateway_that_redis_reaches(tmp_path: Path) -> None:
    def statuses() -> list[int]:
        body = {"model": MODEL, "token_ids": [1] * 64, "wait": False}
        return [asyncio.run(status_of(url, body)) for url in fleet.urls]

    with private_redis(tmp_path) as redis, gateway_fleet(redis.url, tmp_path) as fleet:
        fleet.publish(2, revoked=True)
        wait_until(lambda: statuses() == [401, 401])
        fleet.publish(3)
        wait_until(lambda: statuses() == [200, 200])
        # What cannot be heard is not known: the key goes on until Redis is back.
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
