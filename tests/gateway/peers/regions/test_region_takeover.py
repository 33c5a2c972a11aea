"""A region whose gateway has died: another region serves its engines and hands them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.peers.regions.three_regions import ThreeRegions, three_regions
from tests.patience import PATIENCE_S, until

GOES = "goes to the engine of a dead region, " * 20
"""Several blocks, which that engine holds from then on."""


@pytest.fixture
async def regions(tmp_path: Path) -> AsyncIterator[ThreeRegions]:
    async with three_regions(tmp_path) as running:
        yield running


def holders(regions: ThreeRegions, region: str) -> set[str]:
    """Return the regions whose gateways currently serve a region's engines."""
    names = set()
    for name, gateway in regions.gateways.items():
        assert gateway.gateway.regions is not None
        if name in regions.running and gateway.gateway.regions.serves(region):
            names.add(name)
    return names


async def until_held_by(regions: ThreeRegions, region: str, *names: str) -> None:
    await until(lambda: holders(regions, region) & set(names) and len(holders(regions, region)) == 1)


async def fill(regions: ThreeRegions, region: str) -> asyncio.Task[tuple[int, str, str]]:
    """Occupy a region's engine with a request that never ends."""
    regions.engines[region].stall = True
    stays = asyncio.create_task(regions.chat(region, "stays"))
    async with asyncio.timeout(PATIENCE_S):
        await regions.engines[region].received.wait()
    return stays


async def test_engines_of_a_dead_region_are_served_by_another_and_handed_back(regions: ThreeRegions) -> None:
    await regions.stop("eu")
    await until_held_by(regions, "eu", "us", "asia")
    holder = next(iter(holders(regions, "eu")))
    other = ({"us", "asia"} - {holder}).pop()
    stays = [await fill(regions, name) for name in (holder, other)]
    await until(lambda: not regions.facts(holder, other).available)
    regions.engines["eu"].pause_s = 3.0
    goes = asyncio.create_task(regions.chat(holder, GOES))
    async with asyncio.timeout(PATIENCE_S):
        await regions.engines["eu"].received.wait()
        while not any("eu" in peer.held for peer in regions.peers(other).of_region(holder)):
            await asyncio.sleep(0.02)
    await regions.start("eu")
    await until_held_by(regions, "eu", "eu")
    epoch = regions.epoch("eu", "eu")
    assert epoch.number >= 3, "taken over by the second, taken back by the third"
    await until(lambda: regions.epoch(holder, "eu") == epoch)
    assert not regions.gateways[holder].gateway.pools["eu"].engines
    await until(lambda: "eu" not in regions.peers(other).of_region(holder)[0].held)
    held = regions.peers(other).of_region(holder)[0].held
    assert not held[holder].keys, "no session of the region sticks to one whose engines never saw it"
    # Work that it began for the other region is completed.
    assert (await goes)[0] == 200
    for task in stays:
        task.cancel()
    await asyncio.gather(*stays, return_exceptions=True)


async def test_a_silent_region_keeps_its_engines(regions: ThreeRegions) -> None:
    for name in ("us", "asia"):
        peers = regions.peers(name)
        # Its links break without a rejection: a network that drops everything.
        peers.links.set_peers(
            {gateway: "127.0.0.1:9" for gateway in peers.gateways if gateway.startswith("eu=")}, "silent"
        )
        peers.links.refused = lambda _name: False  # type: ignore[method-assign]
    await regions.stop("eu")
    await asyncio.sleep(3)
    assert holders(regions, "eu") == set()
