"""A region of two gateways with a queue owner, next to another region: all see the same load of the region."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_port
from gateway.base.peer_settings import PeerSettings
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.bus.follower_bus import FollowerBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.peers.regions.regions import Regions
from routing.chain.ownership import ASKS, OWNER
from tests.gateway.peers.owners.shared_fleet import Clock, owners
from tests.gateway.peers.regions.three_regions import three_pools
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S, until


class OwnedRegion:
    """The gateways of us (owner and asking), and that of eu, which knows both or only the asking one."""

    def __init__(self, engines: dict[str, ScriptedEngine]) -> None:
        self.engines = engines
        self.ports = {name: free_port() for name in ("one", "other", "eu")}
        self.owner: ServedGateway
        self.asking: ServedGateway
        self.eu: ServedGateway
        self.end_eu = AsyncExitStack()

    async def send(self, gateway: ServedGateway, text: str) -> str:
        """Send a request and return its decision id; a request rejected as busy (429) is sent again."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                status, answer, headers = await gateway.post("/v1/chat/completions", body, key=KEY)
                if status != 429:
                    assert status == 200, answer
                    return headers["x-headway-decision"]
                await asyncio.sleep(0.1)


def regions_of(gateway: ServedGateway) -> Regions:
    """Return a gateway's regions component."""
    assert gateway.gateway.regions is not None
    return gateway.gateway.regions


def role(gateway: ServedGateway, pool: str = "us") -> str:
    """Return a gateway's role for a pool, empty if the pool is not shared."""
    shared = owners(gateway.gateway).shared.get(pool)
    return shared.ownership.role if shared is not None else ""


@asynccontextmanager
async def owned_region(state_dir: Path, *, knows_owner: bool = True) -> AsyncIterator[OwnedRegion]:
    """Run the gateways during the block; without `knows_owner` eu has only the address of the asking gateway."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(ScriptedEngine()) for name in ("us", "eu")}
        document = encode_snapshot(three_pools({name: engine.url for name, engine in engines.items()}))
        fleet = OwnedRegion(engines)
        shared_bus = InProcessBus()

        async def start(
            name: str, region: str, others: dict[str, tuple[str, ...]], on: AsyncExitStack
        ) -> ServedGateway:
            bus = shared_bus if region == "us" else InProcessBus()
            bus.publish(SNAPSHOT_TOPIC, document)
            peers = PeerSettings(port=fleet.ports[name], region=region, regions=others, name=name)
            settings = GatewaySettings(probe_interval_s=0.1, peers=peers)
            gateway = await on.enter_async_context(
                served([], state_dir / name, bus=FollowerBus(bus, name), gateway_settings=settings)
            )
            owners(gateway.gateway).clock = clock
            return gateway

        ticking = asyncio.create_task(_tick(clock))
        stack.push_async_callback(_end, ticking)
        eu = {"eu": (_address(fleet.ports["eu"]),)}
        both = [await start(name, "us", eu, stack) for name in ("one", "other")]
        await until(lambda: sorted(role(item) for item in both) == [ASKS, OWNER])
        fleet.owner, fleet.asking = sorted(both, key=role, reverse=True)
        names = ["one", "other"] if knows_owner else [_name(fleet.asking)]
        addresses = {"us": tuple(_address(fleet.ports[name]) for name in names)}
        await stack.enter_async_context(fleet.end_eu)
        fleet.eu = await start("eu", "eu", addresses, fleet.end_eu)
        await until(lambda: all(_knows(item, "eu") for item in both) and _knows(fleet.eu, "us"))
        yield fleet


async def _tick(clock: Clock) -> None:
    """Advance lease time no faster than this machine works."""
    while True:
        await asyncio.sleep(0.01)
        clock.now += 0.01


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _knows(gateway: ServedGateway, region: str) -> bool:
    peers = regions_of(gateway).peers
    return region in peers.serving(MODEL, peers.clock())


def _name(gateway: ServedGateway) -> str:
    assert gateway.gateway.settings.peers is not None
    return gateway.gateway.settings.peers.name


def _address(port: int) -> str:
    return f"127.0.0.1:{port}"


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
