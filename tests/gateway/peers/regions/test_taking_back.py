"""A request that another region may still be running is taken back before it goes elsewhere."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.regions.forward_client import ForwardFailedError, ForwardHead, signed_head
from gateway.peers.regions.region_peers import RegionGateway
from gateway.peers.regions.regions import Regions
from gateway.peers.regions.work_lease import WorkLease
from routing.regions.peer_gateway import SILENCE_S
from routing.values.hop import Hop
from simulator.fault_proxy import FaultyLink
from tests.gateway.peers.regions.three_regions import ThreeRegions, three_regions
from tests.gateway.served_gateway import MODEL
from tests.patience import PATIENCE_S, until

# Connections that a test breaks on purpose may still be closing when its loop ends.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
BODY = b"{}"
DIGEST = blake2b(BODY, digest_size=16).hexdigest()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_to_others() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
async def regions(tmp_path: Path) -> AsyncIterator[ThreeRegions]:
    async with three_regions(tmp_path, behind_proxy=True) as running:
        yield running


def served(regions: ThreeRegions, region: str) -> Regions:
    part = regions.gateways[region].gateway.regions
    assert part is not None
    return part


def to(regions: ThreeRegions, region: str) -> RegionGateway:
    """Return us's state of a region's gateway."""
    return regions.peers("us").of_region(region)[0]


def head(stamp: float) -> ForwardHead:
    digest = blake2b(BODY, digest_size=16).hexdigest()
    caller = ApiKeyEntry(key_id="k", sha256="", tenant_id="t")
    return ForwardHead("d-1", Hop("us", "eu", "", ""), caller, 0.0, digest, stamp)


async def forwarded(regions: ThreeRegions) -> tuple[asyncio.Task[Any], asyncio.Task[Any], str, str]:
    """Return two requests, of which the second runs in the named region without end, and its id."""
    for engine in regions.engines.values():
        engine.stall = True
    first = asyncio.create_task(regions.chat("us", "stays"))
    async with asyncio.timeout(PATIENCE_S):
        await regions.engines["us"].received.wait()
        second = asyncio.create_task(regions.chat("us", "goes"))
        while not any(regions.engines[name].received.is_set() for name in ("eu", "asia")):
            await asyncio.sleep(0.01)
    where = next(name for name in ("eu", "asia") if regions.engines[name].received.is_set())
    for name in {"eu", "asia"} - {where}:
        regions.engines[name].stall = False
    (decision_id,) = served(regions, where).server._serving
    return first, second, where, decision_id


def break_our_end(link: FaultyLink) -> None:
    """Reset the connections of connected peers without notifying the other end."""
    link.there.stall(True)
    for writer in list(link._open):
        if writer.get_extra_info("sockname")[1] == link.port:
            writer.transport.abort()


async def answered_elsewhere(regions: ThreeRegions, second: asyncio.Task[Any], where: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        status, _, _ = await second
        await regions.engines[where].disconnected.wait()
    assert status == 200


async def test_a_region_unaware_of_the_break_is_awaited_until_its_lease_ends(regions: ThreeRegions) -> None:
    first, second, where, _ = await forwarded(regions)
    break_our_end(regions.links["us", where])
    await answered_elsewhere(regions, second, where)
    regions.links["us", where].there.stall(False)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    # Whether it was in two places at once is checked with all events at the end.
    assert regions.events.dispatches((await second)[2]) == 2


async def test_a_withdrawn_request_is_ended_and_never_started_again(regions: ThreeRegions) -> None:
    first, second, where, decision_id = await forwarded(regions)
    await served(regions, "us").client.settle(to(regions, where), decision_id)
    assert decision_id not in served(regions, where).server._serving
    await answered_elsewhere(regions, second, where)
    server, clock = served(regions, "eu").server, regions.peers("eu").clock
    assert server._problem(head(clock()), DIGEST) == ""
    await served(regions, "us").client.settle(to(regions, "eu"), "d-1")
    assert server._problem(head(clock()), DIGEST) == "served_before"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_a_request_delayed_in_transit_is_not_started(regions: ThreeRegions) -> None:
    server, clock = served(regions, "eu").server, regions.peers("eu").clock
    assert server._problem(head(clock() - SILENCE_S + 1.0), DIGEST) == ""
    assert server._problem(head(clock() - SILENCE_S - 0.1), DIGEST) == "too_late"
    assert server._problem(head(clock() + 3600.0), DIGEST) == "too_late", "no region has issued that stamp yet"


async def test_a_request_queued_past_its_lease_is_not_started(
    regions: ThreeRegions, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu, client = regions.peers("eu"), served(regions, "us").client
    held_up_s, clock = [0.0], eu.clock
    monkeypatch.setattr(eu, "clock", lambda: clock() + held_up_s[0])
    regions.engines["eu"].stall = True
    own = asyncio.create_task(regions.chat("eu", "keeps the engine busy"))
    await regions.engines["eu"].received.wait()
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "comes from us"}]}).encode()
    gateway, caller = to(regions, "eu"), ApiKeyEntry(key_id="k", sha256="", tenant_id="tenant-a")
    signed = await signed_head("d-1", Hop("us", "eu", "", ""), caller, body, age_s=0.0, stamp=gateway.stamp)

    async def forward() -> None:
        async with client.answer(gateway, "/v1/chat/completions", body, {"content-type": "application/json"}, signed):
            raise AssertionError("the region has served it")

    forwarded = asyncio.create_task(forward())
    pool = regions.gateways["eu"].gateway.pools["eu"]
    await until(lambda: pool.driver._waiting)
    # A stalled process neither receives anything nor ends overdue work.
    for peers in (eu, regions.peers("us")):
        assert peers._task is not None
        peers._task.cancel()
        await asyncio.gather(*peers._questions, return_exceptions=True)
    held_up_s[0] = SILENCE_S + 0.1
    regions.engines["eu"].stall = False
    own.cancel()
    with pytest.raises(ForwardFailedError, match="status 409"):
        await forwarded
    assert len(regions.engines["eu"].bodies) == 1
    await asyncio.gather(own, return_exceptions=True)


async def test_a_heartbeat_after_the_lease_ended_saves_no_earlier_work() -> None:
    lease, now = WorkLease(SILENCE_S), [0.0]
    lease.renew(0.0, 0.0)
    held = lease.held(lambda: now[0])
    now[0] = SILENCE_S
    lease.renew(now[0], now[0])
    assert held.holds()
    now[0] += SILENCE_S + 0.1
    assert not held.holds()
    with pytest.raises(TimeoutError):
        async with lease.work():
            lease.renew(now[0], now[0])
            await asyncio.sleep(5)
    assert not lease.is_over(now[0])
    assert not held.holds(), "its first contact may have taken it back"
    assert lease.held(lambda: now[0]).holds()


async def test_a_dead_gateway_is_not_awaited(regions: ThreeRegions) -> None:
    gateway, client = to(regions, "eu"), served(regions, "us").client
    await regions.stop("eu")
    async with asyncio.timeout(PATIENCE_S):
        await client.settle(gateway, "d-1")
