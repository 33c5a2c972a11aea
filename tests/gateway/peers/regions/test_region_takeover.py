"""A region whose gateway has died: another region serves its engines and hands them back.

The delay before a dead region is taken over, and the choice of claimant, with an injected clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.peers.links.peer_link import PeerIdentity, PeerLinks
from gateway.peers.regions.region_peers import SPOKE_S, RegionPeers, heartbeat_calls
from gateway.peers.regions.region_takeover import _VOTES, DEAD_S, KIND, STARTING_S, STEP_S, RegionTakeover, Vote
from kvstore.keys.keyring import Keyring
from routing.regions.heartbeat import Heartbeat, HeartbeatCall, RegionEpoch
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


ADDRESSES = {"asia": ("127.0.0.1:2",), "eu": ("127.0.0.1:1",)}


class Watched:
    """The gateway of us with peers and clock set by the test. Mutable: `now` and the regions that reject."""

    def __init__(self, state_dir: Path, *, with_heartbeat: bool = True, eu_from_asia_s: float = 0.1) -> None:
        self.now = 100.0
        self.rejecting: set[str] = set()
        self.engines_answer = True
        self.links = PeerLinks(PeerIdentity("aaaaaaaa", "us"), Keyring.of(b"a secret of gateways under a clock"))
        self.links.refused = lambda name: name.partition("=")[0] in self.rejecting  # type: ignore[method-assign,misc]
        self.links.connected = lambda name: name.partition("=")[0] not in self.rejecting  # type: ignore[method-assign,misc]
        self.links.ask = self._ask  # type: ignore[method-assign]
        self.votes: list[str] = []
        self.peers = RegionPeers(self.links, ADDRESSES, tuple, clock=lambda: self.now, epochs_path=state_dir / "e.json")
        self.takeover = RegionTakeover(self.peers, self._answer)
        if with_heartbeat:
            self.beat("eu")
            self.beat("asia", {"eu": eu_from_asia_s})

    def beat(self, region: str, one_way_s: dict[str, float] | None = None) -> None:
        """Receive a heartbeat of a region, 40 ms away."""
        (gateway,) = self.peers.of_region(region)
        asked_s, self.now = self.now, self.now + 0.08
        gateway.receive(Heartbeat(region, region, 0.0, (), {}, one_way_s or {}, {}), asked_s, self.now, 0.0)

    async def pass_until_taken(self, limit_s: float = 60.0) -> float:
        """Check every 100 ms until eu is taken over; return the elapsed seconds."""
        began = self.now
        while not self.peers.epochs.serves("eu") and self.now - began < limit_s:
            self.now += 0.1
            if self.peers.of_region("asia")[0].heartbeat is not None:
                self.peers.of_region("asia")[0].heartbeat_s = self.now
            self.peers._publish(self.now)
            for _ in range(5):
                await asyncio.sleep(0)
        return self.now - began

    async def _answer(self, _region: str) -> bool:
        return self.engines_answer

    async def _ask(self, name: str, kind: str, _body: bytes, _timeout_s: float) -> bytes:
        assert kind == KIND
        self.votes.append(name)
        return _VOTES.encode(Vote(True))


async def test_the_nearest_region_claims_once_rejections_have_lasted(tmp_path: Path) -> None:
    us = Watched(tmp_path)
    us.rejecting.add("eu")
    assert DEAD_S <= await us.pass_until_taken() <= DEAD_S + 0.3
    assert us.votes == ["asia=127.0.0.1:2"]


async def test_the_next_nearest_region_waits_one_step_longer(tmp_path: Path) -> None:
    us = Watched(tmp_path, eu_from_asia_s=0.01)
    us.rejecting.add("eu")
    assert DEAD_S + STEP_S <= await us.pass_until_taken() <= DEAD_S + STEP_S + 0.3


async def test_a_starting_fleet_is_given_time(tmp_path: Path) -> None:
    us = Watched(tmp_path, with_heartbeat=False)
    us.rejecting.add("eu")
    assert await us.pass_until_taken() >= STARTING_S


async def test_a_region_with_unreachable_engines_is_not_taken_over_until_they_respond(tmp_path: Path) -> None:
    us = Watched(tmp_path)
    us.rejecting.add("eu")
    us.engines_answer = False
    await us.pass_until_taken(5.0)
    assert us.votes == []
    us.engines_answer = True
    assert await us.pass_until_taken() <= 1.0


async def test_a_gateway_that_calls_is_alive_although_it_rejected_before(tmp_path: Path) -> None:
    us = Watched(tmp_path)
    del us.links.refused, us.links.connected  # type: ignore[method-assign,attr-defined]
    us.links.set_peers({"eu=127.0.0.1:1": "127.0.0.1:1"})
    us.links._links["eu=127.0.0.1:1"].refused = True
    assert us.peers.is_dead("eu")
    await us.peers._answer(PeerIdentity("bbbbbbbb", "eu"), heartbeat_calls.encode(HeartbeatCall()))
    us.links._links["eu=127.0.0.1:1"].refused = True
    us.now += SPOKE_S
    assert not us.peers.is_dead("eu"), "no gateway claims a region that responds, whatever proxy is in front of it"
    us.now += 0.01
    assert us.peers.is_dead("eu")


async def test_a_region_that_calls_and_rejects_is_not_taken_over(tmp_path: Path) -> None:
    us = Watched(tmp_path)
    us.rejecting.add("eu")
    for _ in range(50):
        await us.peers._answer(PeerIdentity("bbbbbbbb", "eu"), heartbeat_calls.encode(HeartbeatCall()))
        await us.pass_until_taken(0.05)
    assert not us.peers.epochs.serves("eu")
    assert await us.pass_until_taken() <= DEAD_S + SPOKE_S + 0.3


async def test_a_gateway_that_sees_its_region_held_elsewhere_takes_it_back_immediately(tmp_path: Path) -> None:
    us = Watched(tmp_path)
    epochs: Any = {"us": RegionEpoch(2, "cccccccc", "asia")}
    assert us.peers.epochs.serves("us")
    us.peers.epochs.receive(epochs)
    assert us.peers.epochs.serves("us")
    assert us.peers.epochs.known["us"] == RegionEpoch(3, "aaaaaaaa", "us")


@pytest.mark.parametrize("claims", [True, False])
async def test_only_one_of_a_regions_gateways_claims(tmp_path: Path, claims: bool) -> None:
    us = Watched(tmp_path)
    us.takeover._claims_here = lambda: claims
    us.rejecting.add("eu")
    await us.pass_until_taken(5.0)
    assert us.peers.epochs.serves("eu") is claims
