"""A region of two gateways with a queue owner, next to another region: all see the same load of the region."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from routing.chain.ownership import ASKS, OWNER
from tests.gateway.regions.owned_region import OwnedRegion, owned_region, regions_of, role
from tests.gateway.served_gateway import MODEL, ServedGateway
from tests.patience import PATIENCE_S, until


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[OwnedRegion]:
    async with owned_region(tmp_path) as running:
        yield running


async def occupy(fleet: OwnedRegion, region: str, gateway: ServedGateway) -> asyncio.Task[str]:
    """Occupy a region's only engine through this gateway with a request that does not end."""
    fleet.engines[region].stall = True
    stays = asyncio.create_task(fleet.send(gateway, "stays"))
    async with asyncio.timeout(PATIENCE_S):
        await fleet.engines[region].received.wait()
    fleet.engines[region].stall = False
    return stays


async def end(task: asyncio.Task[str]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_forwarded_request_is_decided_by_the_owner_of_the_receiving_region(tmp_path: Path) -> None:
    async with owned_region(tmp_path, knows_owner=False) as fleet:
        stays = await occupy(fleet, "eu", fleet.eu)
        name = await fleet.send(fleet.eu, "goes")
        assert len(fleet.engines["us"].bodies) == 1
        record = fleet.asking.app.recent.get(name)
        owner = fleet.owner.gateway.settings.peers
        assert record is not None
        assert record.hop is not None
        assert owner is not None
        assert (record.hop.origin, record.hop.destination, record.outcome) == ("eu", "us", "completed")
        assert record.decision.decided_by.startswith(f"{owner.name}, epoch ")
        assert fleet.owner.app.recent.get(name) is None, "its bytes went through the gateway that took it"
        await end(stays)


async def test_requests_at_either_gateway_leave_a_region_filled_through_the_other(
    fleet: OwnedRegion,
) -> None:
    stays = await occupy(fleet, "us", fleet.owner)
    await until(lambda: _engines_with_room(fleet.asking) == 0)
    await fleet.send(fleet.asking, "goes")
    assert len(fleet.engines["eu"].bodies) == 1
    await end(stays)


async def test_other_regions_count_a_request_once(fleet: OwnedRegion) -> None:
    stays = await occupy(fleet, "us", fleet.asking)
    peers = regions_of(fleet.eu).peers

    def facts() -> list[tuple[bool, int, int]]:
        serving = peers.serving(MODEL, peers.clock()).get("us", [])
        return [(facts.whole, facts.in_flight, facts.available) for _, facts in serving]

    await until(lambda: facts() == [(True, 1, 0)] * 2)
    name = await fleet.send(fleet.eu, "stays in eu")
    record = fleet.eu.app.recent.get(name)
    assert record is not None
    assert record.hop is None
    await end(stays)


async def test_a_region_that_was_taken_over_is_served_by_one_gateway_only(fleet: OwnedRegion) -> None:
    both = [fleet.owner, fleet.asking]
    await fleet.end_eu.aclose()
    await until(lambda: any(regions_of(item).serves("eu") for item in both))
    (holder,) = [item for item in both if regions_of(item).serves("eu")]
    assert holder.gateway.new_id.tag == min(item.gateway.new_id.tag for item in both)
    await until(lambda: bool(holder.gateway.pools["eu"].accepting))
    assert [role(item, "eu") for item in both] == ["", ""]
    assert sorted(role(item) for item in both) == [ASKS, OWNER]
    stays = await occupy(fleet, "us", holder)
    await fleet.send(holder, "goes")
    assert len(fleet.engines["eu"].bodies) == 1
    await end(stays)


def _engines_with_room(gateway: ServedGateway) -> int | None:
    load = gateway.gateway.pools["us"].load_report
    return None if load is None else sum(engine.has_room for engine in load.engines)
