"""Work for another gateway ends before that gateway takes it back."""

from __future__ import annotations

import asyncio

import pytest

from gateway.regions.region_peers import RegionGateway
from gateway.regions.work_lease import LEASE_MARGIN_S, WorkLease
from routing.regions.heartbeat import Heartbeat
from routing.regions.peer_gateway import SILENCE_S


async def test_work_ends_before_the_first_gateway_takes_it_back() -> None:
    serving, peer = WorkLease(SILENCE_S), RegionGateway("eu=1", "eu", "127.0.0.1:1")
    # The stamp is made at 0.0 and comes 0.3 s later, so it precedes the question.
    serving.renew(0.0, 0.0)
    peer.receive(Heartbeat("aaaaaaaa", "eu", 0.0, (), {}, {}, {}), asked_s=-0.3, now=0.3, wall=0.0)
    begun = asyncio.Event()

    async def work(lease: WorkLease) -> None:
        async with lease.work():
            begun.set()
            await asyncio.sleep(3600)

    there, first_contact = asyncio.create_task(work(serving)), asyncio.create_task(work(peer.lease))
    await begun.wait()
    await asyncio.sleep(0)
    for now in (SILENCE_S, SILENCE_S + 0.1, SILENCE_S + 0.3 + LEASE_MARGIN_S, SILENCE_S + 0.4 + LEASE_MARGIN_S):
        for lease in (serving, peer.lease):
            lease.end_overdue(now)
        await asyncio.wait((there, first_contact), timeout=0)
        await asyncio.sleep(0)
        assert there.done() == (now > SILENCE_S)
        assert first_contact.done() == (now > SILENCE_S + 0.3 + LEASE_MARGIN_S)
    for task in (there, first_contact):
        with pytest.raises(TimeoutError):
            await task


def test_an_old_heartbeat_renews_no_lease() -> None:
    lease = WorkLease(SILENCE_S)
    assert lease.is_over(0.0)
    lease.renew(5.0, 5.0)
    lease.renew(4.0, 5.0)
    assert not lease.is_over(5.0 + SILENCE_S)
    assert lease.is_over(5.1 + SILENCE_S)
