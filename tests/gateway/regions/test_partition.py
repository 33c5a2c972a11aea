"""Partitions, delays and resets between regions, through the fault proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from routing.regions.peer_gateway import SILENCE_S
from tests.gateway.regions.three_regions import REGIONS, ThreeRegions, three_regions
from tests.gateway.served_gateway import KEY, MODEL
from tests.patience import PATIENCE_S, until


@pytest.fixture
async def regions(tmp_path: Path) -> AsyncIterator[ThreeRegions]:
    async with three_regions(tmp_path, behind_proxy=True) as running:
        yield running


def reached(regions: ThreeRegions, region: str) -> set[str]:
    """Return the regions to which a region can currently send requests."""
    peers = regions.peers(region)
    return set(peers.serving(MODEL, peers.clock()))


def isolate(regions: ThreeRegions, region: str, *, cut: bool = True) -> None:
    for other in set(REGIONS) - {region}:
        regions.cut(region, other, cut=cut)
        regions.cut(other, region, cut=cut)


async def overload(regions: ThreeRegions, region: str, count: int = 5) -> dict[str, int]:
    """Send this many requests at once; return how many each region's engine received."""
    before = {name: len(engine.bodies) for name, engine in regions.engines.items()}
    regions.engines[region].pause_s = 0.3
    answers = await asyncio.gather(*(regions.chat(region, f"question {number}") for number in range(count)))
    assert [status for status, _, _ in answers] == [200] * count, answers
    return {name: len(engine.bodies) - before[name] for name, engine in regions.engines.items()}


async def test_each_side_of_a_partition_serves_its_own_requests_and_recovers(regions: ThreeRegions) -> None:
    isolate(regions, "us")
    await until(lambda: not reached(regions, "us") and reached(regions, "eu") == {"asia"})
    served = await overload(regions, "us")
    assert (served["eu"], served["asia"]) == (0, 0)
    assert (await overload(regions, "eu"))["us"] == 0
    for name in REGIONS:
        assert regions.peers(name).epochs.adopted == (), "silence is no death"
    isolate(regions, "us", cut=False)
    await regions.meet()
    served = await overload(regions, "us")
    assert served["eu"] or served["asia"]


async def test_a_one_way_partition_stops_both_directions(regions: ThreeRegions) -> None:
    regions.cut("us", "eu")
    await until(lambda: reached(regions, "us") == {"asia"} and reached(regions, "eu") == {"asia"})
    assert (await overload(regions, "us"))["eu"] == 0
    assert (await overload(regions, "eu"))["us"] == 0
    for gateway in regions.gateways.values():
        for record in gateway.app.recent._records.values():
            assert record.hop is None or {record.hop.origin, record.hop.destination} != {"us", "eu"}


async def test_a_peer_silent_for_two_seconds_gets_no_requests_although_its_link_is_up(
    regions: ThreeRegions,
) -> None:
    peers = regions.peers("us")
    await until(lambda: reached(regions, "us") == {"eu", "asia"})
    heartbeats_s = [gateway.heartbeat_s for gateway in peers.gateways.values()]
    assert set(peers.serving(MODEL, min(heartbeats_s) + SILENCE_S)) == {"eu", "asia"}
    assert peers.serving(MODEL, max(heartbeats_s) + SILENCE_S + 0.001) == {}
    assert all(peers.links.connected(name) for name in peers.gateways)


async def test_delays_and_resets_lose_no_request(regions: ThreeRegions) -> None:
    for link in regions.links.values():
        link.there.delay_s = link.back.delay_s = 0.1
    await regions.meet()
    delayed = await overload(regions, "us")
    assert sum(delayed.values()) >= 5
    for link in regions.links.values():
        link.reset()
    reset = await overload(regions, "us")
    assert sum(reset.values()) >= 5
    await regions.meet()


async def test_a_stream_whose_link_breaks_ends_with_an_error(regions: ThreeRegions) -> None:
    regions.engines["us"].stall = True
    first = asyncio.create_task(regions.chat("us", "stays"))
    async with asyncio.timeout(PATIENCE_S):
        await regions.engines["us"].received.wait()
        for name in ("eu", "asia"):
            regions.engines[name].pause_s = 2 * PATIENCE_S
        gateway, headers = regions.gateways["us"], {"authorization": f"Bearer {KEY}"}
        body = {"model": MODEL, "messages": [{"role": "user", "content": "goes"}], "stream": True}
        async with gateway.client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as answer:
            begun = await answer.content.readany()
            for link in regions.links.values():
                link.reset()
            rest = await answer.content.read()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (answer.status, b"Hel" in begun, b"broken_stream" in rest) == (200, True, True)
