"""Several gateways of one fleet in this process: real links between them, and one bus client each on one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from gateway.base.peer_settings import PeerSettings
from gateway.bus.bus import Bus, InProcessBus
from gateway.bus.follower_bus import FollowerBus
from gateway.contracts.snapshot import Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.owners.pool_owners import PoolOwners, SharedPool
from kvstore.keys.keyring import Keyring
from kvstore.transfer.tls import TlsFiles
from routing.chain.ownership import ASKS, OWNER, Ownership
from tests.gateway.live_gateway import KEYRING, SETTINGS


def owners(gateway: Gateway) -> PoolOwners:
    """Return the gateway's ownership component."""
    assert gateway.peering.owners is not None
    return gateway.peering.owners


def shared(gateway: Gateway) -> SharedPool:
    """Return the gateway's shared state of the pool named "pool"."""
    return owners(gateway).shared["pool"]


def ownership(gateway: Gateway) -> Ownership:
    """Return the gateway's view of that pool's ownership."""
    return shared(gateway).ownership


class Clock:
    """A clock that advances only while a test waits, and no faster than the machine works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def until(self, condition: Callable[[], bool], patience_s: float = 60.0) -> float:
        """Wait until the condition holds; return the seconds of this clock that it took."""
        began = self.now
        async with asyncio.timeout(patience_s):
            while not condition():
                await asyncio.sleep(0.01)
                self.now += 0.01
        return self.now - began

    async def passes(self, seconds: float) -> None:
        """Wait until this many seconds of this clock have passed."""
        until = self.now + seconds
        await self.until(lambda: self.now > until)


def unstarted(
    state_dir: Path,
    snapshot: Snapshot,
    names: str,
    make_bus: Callable[[], Bus],
    clock: Clock,
    tls: TlsFiles | None = None,
    keyrings: Mapping[str, Keyring] = MappingProxyType({}),
) -> list[Gateway]:
    """Return gateways with these names that are not started; those in `keyrings` use these secrets."""
    gateways = []
    make_bus().publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot))
    for name in names:
        settings = replace(SETTINGS, peers=PeerSettings(name=name, tls=tls))
        bus = FollowerBus(make_bus(), name)
        gateways.append(
            Gateway(bus, keyring=keyrings.get(name, KEYRING), state_dir=state_dir / name, settings=settings)
        )
        owners(gateways[-1]).clock = clock
    return gateways


@asynccontextmanager
async def started(gateways: list[Gateway]) -> AsyncIterator[None]:
    """Run gateways during the block."""
    try:
        for gateway in gateways:
            await gateway.start()
        yield
    finally:
        for gateway in gateways:
            await gateway.stop()


@asynccontextmanager
async def fleet(
    state_dir: Path,
    snapshot: Snapshot,
    names: str = "ab",
    make_bus: Callable[[], Bus] | None = None,
    clock: Clock | None = None,
    tls: TlsFiles | None = None,
    keyrings: Mapping[str, Keyring] = MappingProxyType({}),
) -> AsyncIterator[list[Gateway]]:
    """Start gateways with these names; return when one of them owns the pool and the others ask it."""
    clock, one = clock or Clock(), InProcessBus()
    gateways = unstarted(state_dir, snapshot, names, make_bus or (lambda: one), clock, tls, keyrings)
    async with started(gateways):
        await clock.until(lambda: settled(gateways))
        yield gateways


def settled(gateways: list[Gateway]) -> bool:
    """Return whether one of them owns the pool and the others ask it."""
    if any("pool" not in owners(gateway).shared for gateway in gateways):
        return False
    roles = sorted(ownership(gateway).role for gateway in gateways)
    return (
        roles == [ASKS] * (len(gateways) - 1) + [OWNER] and len({ownership(gateway).seen for gateway in gateways}) == 1
    )


async def kill(gateway: Gateway) -> None:
    """End the gateway as SIGKILL appears to others: its port refuses connections and its lease remains."""
    (task,) = [item for item in gateway._tasks if item.get_name() == "pool owners"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    owners(gateway).directory.stop()
    assert gateway.peering.links is not None
    await gateway.peering.links.stop()


def split(gateways: list[Gateway]) -> tuple[Gateway, list[Gateway]]:
    """Return the pool's owner, and the others."""
    (owner,) = [gateway for gateway in gateways if ownership(gateway).role == OWNER]
    return owner, [gateway for gateway in gateways if gateway is not owner]
