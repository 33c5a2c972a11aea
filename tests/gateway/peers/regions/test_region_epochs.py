"""Epochs: one holder per number, a region's own gateway takes it back, and silence grants nothing.

Work for another gateway ends before that gateway takes it back.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from gateway.peers.regions.region_epochs import RegionEpochs, is_granted
from gateway.peers.regions.region_peers import RegionGateway
from gateway.peers.regions.work_lease import LEASE_MARGIN_S, WorkLease
from routing.regions.heartbeat import Heartbeat, RegionEpoch
from routing.regions.peer_gateway import SILENCE_S

REGIONS = ("us", "eu", "asia")


def epochs(region: str, tag: str = "") -> RegionEpochs:
    return RegionEpochs(tag or region, region, [item for item in REGIONS if item != region], lambda: None)


def test_a_region_serves_its_own_and_ungoverned_engines() -> None:
    us = epochs("us")
    assert us.serves("us")
    assert not us.serves("eu")
    assert us.serves("a region without gateways")


def test_a_number_is_granted_once_and_only_for_a_dead_region() -> None:
    asia = epochs("asia")
    number = asia.next_number("eu")
    assert not asia.grant("eu", number, dead=False)
    assert asia.grant("eu", number, dead=True)
    assert not asia.grant("eu", number, dead=True)
    assert not asia.grant("asia", 99, dead=True), "no gateway gives up its own region"


def test_a_returning_region_takes_the_next_epoch_and_the_other_yields() -> None:
    us, eu = epochs("us"), epochs("eu")
    us.take("eu", 2)
    assert us.serves("eu")
    assert us.adopted == ("eu",)
    eu.receive(us.known)
    assert eu.known["eu"] == RegionEpoch(3, "eu", "eu")
    us.receive(eu.known)
    assert not us.serves("eu")
    assert us.known["eu"].number == 3


def test_a_returning_region_takes_no_number_granted_meanwhile() -> None:
    us, eu, asia = epochs("us"), epochs("eu"), epochs("asia")
    us.take("eu", us.next_number("eu"))
    eu.receive(us.known)
    asia.receive(us.known)
    taken_back = eu.known["eu"]
    # To asia and us it still seems dead.
    number = asia.next_number("eu")
    assert us.grant("eu", number, dead=True)
    asia.take("eu", number)
    assert number != taken_back.number
    for one, other in ((eu, asia), (us, eu), (asia, eu)):
        one.receive(other.known)
    assert us.known["eu"] == asia.known["eu"] == eu.known["eu"]
    assert (eu.known["eu"].region, eu.known["eu"].number) == ("eu", number + 1)


def test_the_higher_epoch_wins_on_contact() -> None:
    us, asia = epochs("us"), epochs("asia")
    us.take("eu", 2)
    asia.take("eu", 3)
    us.receive(asia.known)
    asia.receive(us.known)
    assert not us.serves("eu")
    assert asia.serves("eu")


def test_an_old_epoch_changes_nothing() -> None:
    us = epochs("us")
    us.take("eu", 4)
    us.receive({"eu": RegionEpoch(3, "asia", "asia")})
    assert us.serves("eu")


def test_a_grant_needs_a_majority_of_votes() -> None:
    assert is_granted([True])
    assert not is_granted([True, False])
    assert is_granted([True, True, False])


def test_an_unreadable_file_resets_the_epochs(tmp_path: Path) -> None:
    path = tmp_path / "epochs.json"
    path.write_bytes(b"{no json")
    assert RegionEpochs("us", "us", ("eu",), lambda: None, path).known == {"us": RegionEpoch(1, "us", "us")}


def test_in_random_histories_no_number_has_two_holders(tmp_path: Path) -> None:
    for seed in range(50):
        rng = random.Random(seed)
        paths = {name: tmp_path / f"{seed}-{name}.json" for name in REGIONS}
        others = {name: [item for item in REGIONS if item != name] for name in REGIONS}
        alive = {name: RegionEpochs(name, name, others[name], lambda: None, paths[name]) for name in REGIONS}
        tags = iter(range(1000))
        holders: dict[tuple[str, int], set[str]] = {}
        granted: list[tuple[RegionEpochs, str, int]] = []
        for _ in range(60):
            name = rng.choice(REGIONS)
            match rng.choice(("die", "claim", "take", "meet", "meet")):
                case "die":
                    # It comes back with a new tag.
                    tag = f"{name}{next(tags)}"
                    alive[name] = RegionEpochs(tag, name, others[name], lambda: None, paths[name])
                case "claim":
                    dead = rng.choice([item for item in REGIONS if item != name])
                    voter = next(item for item in REGIONS if item not in (name, dead))
                    number = alive[name].next_number(dead)
                    votes = [alive[name].grant(dead, number, dead=True), alive[voter].grant(dead, number, dead=True)]
                    if is_granted(votes):
                        granted.append((alive[name], dead, number))
                case "take" if granted:
                    # The votes were on their way while others met, died and came back.
                    claimant, dead, number = granted.pop(rng.randrange(len(granted)))
                    claimant.take(dead, number)
                case _:
                    other = rng.choice(REGIONS)
                    alive[name].receive(alive[other].known)
            for gateway in alive.values():
                for region, epoch in gateway.known.items():
                    if epoch.region != region:
                        holders.setdefault((region, epoch.number), set()).add(epoch.region)
        assert all(len(holder) == 1 for holder in holders.values()), seed


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
