"""The owner dies, hangs, or is cut off, or the bus is flushed: one owner per epoch and no duplicate dispatch."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis as redis_client

from bench.live.loopback_ports import free_port
from gateway.base import background
from gateway.bus.bus import Bus, InProcessBus
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.fleet_sample import PoolRole
from gateway.gateway import Gateway
from gateway.peers.links.peer_link import PeerIdentity
from gateway.peers.owners.pool_owners import BATCH, BATCHES, BEATS, TICK_S
from gateway.pools.pool.live_pool import LivePool
from kvstore.keys.keyring import Keyring
from routing.chain.owner_messages import Ask, Batch, OwnerEpoch, sent
from routing.chain.ownership import ALONE as ALONE_ROLE
from routing.chain.ownership import ASKS, ONLY, OWNER, UNREACHED, Ownership
from routing.values.decision import ALONE, Dispatched
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed
from tests.gateway.live_gateway import engine_entry, request, snapshot
from tests.gateway.peers.owners.shared_fleet import (
    Clock,
    fleet,
    kill,
    owners,
    ownership,
    settled,
    shared,
    split,
    started,
    unstarted,
)
from tests.gateway.scripted_engine import ScriptedEngine
from tests.private_redis import PrivateRedis, patient_bus, private_redis


class History:
    """The owners of the pool with their epochs, and each dispatch that a gateway made."""

    def __init__(self) -> None:
        self.elected: list[OwnerEpoch] = []
        self.dispatched: Counter[str] = Counter()

    def check(self) -> None:
        """Raise AssertionError if two gateways owned the pool under one epoch, or a request was dispatched twice."""
        numbers = Counter(epoch.number for epoch in self.elected)
        assert max(numbers.values()) == 1, self.elected
        assert [item.number for item in self.elected] == sorted(numbers), self.elected
        assert not [name for name, count in self.dispatched.items() if count > 1]

    async def place(self, gateway: Gateway, asked: InferenceRequest) -> Dispatched:
        """Place a request at this gateway."""
        outcome = await pool(gateway).decide(asked, hold=True)
        assert isinstance(outcome, Dispatched), outcome
        self.dispatched[asked.request_id] += 1
        return outcome


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    recorded = History()
    elected = Ownership.elected

    def record(self: Ownership, epoch: OwnerEpoch, asked_s: float) -> None:
        recorded.elected.append(epoch)
        elected(self, epoch, asked_s)

    monkeypatch.setattr(Ownership, "elected", record)
    yield recorded
    recorded.check()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def three(tmp_path: Path, clock: Clock, history: History) -> AsyncIterator[list[Gateway]]:
    async with ScriptedEngine() as one, ScriptedEngine() as other:
        engines = [engine_entry("e1", one.url), engine_entry("e2", other.url)]
        async with fleet(tmp_path, snapshot(engines), "abc", clock=clock) as gateways:
            yield gateways


def pool(gateway: Gateway) -> LivePool:
    return gateway.pools["pool"]


def made(gateway: Gateway, tokens: int = 100) -> InferenceRequest:
    return request(gateway.new_id(), (), tokens)


def owned_by(gateways: list[Gateway], after: int) -> bool:
    return settled(gateways) and ownership(gateways[0]).seen.number > after


async def test_a_dead_owner_is_replaced_and_the_new_owner_knows_running_requests(
    three: list[Gateway], clock: Clock, history: History
) -> None:
    owner, others = split(three)
    running = [made(gateway, 3000) for gateway in others for _ in range(2)]
    for asked in running:
        gateway = next(item for item in others if asked.request_id.endswith(item.new_id.tag))
        await history.place(gateway, asked)
    await kill(owner)
    took_s = await clock.until(lambda: owned_by(others, 1))
    assert took_s <= 2.0
    new, (other,) = split(others)
    assert ownership(new).seen == OwnerEpoch(2, new.new_id.tag)
    names = {asked.request_id for asked in running}
    await clock.until(lambda: set(pool(new).router.reservations.by_id) == names)
    assert len(shared(new).decider) == 2
    outcome = await history.place(other, made(other))
    assert outcome.decision.decided_by == f"{new.settings.peers.name}, epoch 2"  # type: ignore[union-attr]
    for asked in running:
        gateway = next(item for item in others if asked.request_id.endswith(item.new_id.tag))
        pool(gateway).observe(Completed(asked.request_id))
    await clock.until(lambda: len(pool(new).router.reservations) == 1)


async def test_reservations_of_a_dead_gateway_are_released(
    three: list[Gateway], clock: Clock, history: History
) -> None:
    owner, (dead, _) = split(three)
    await history.place(dead, made(dead))
    assert len(pool(owner).router.reservations) == 1
    await kill(dead)
    await clock.until(lambda: len(pool(owner).router.reservations) == 0)
    assert ownership(owner).role == OWNER


async def test_a_hanging_owner_costs_a_bounded_wait_and_its_late_answers_are_ignored(
    three: list[Gateway], clock: Clock, history: History
) -> None:
    owner, others = split(three)
    held: list[tuple[PeerIdentity, bytes]] = []
    assert owner.peering.links is not None
    owner.peering.links.on_notice(BATCHES, lambda peer, body: held.append((peer, body)))
    owner.peering.links.on_notice(BEATS, lambda _peer, _body: None)
    (task,) = [item for item in owner._tasks if item.get_name() == "pool owners"]
    task.cancel()
    other = others[0]
    asked = made(other)
    waits = asyncio.create_task(history.place(other, asked))
    took_s = await clock.until(waits.done)
    assert took_s <= 1.0
    assert waits.result().decision.decided_by == ALONE
    assert (ownership(other).role, bool(ownership(other).reason)) == (ALONE_ROLE, True)
    assert await clock.until(lambda: owned_by(others, 1)) <= 2.5
    # It comes back and works off what it was sent.
    for peer, body in held:
        owners(owner)._on_batch(peer, body)
    assert len(shared(owner).decider) == 0
    owner.peering.links.on_notice(BATCHES, owners(owner)._on_batch)
    owner.peering.links.on_notice(BEATS, owners(owner)._on_beat)
    owner._tasks.append(background.every("pool owners", TICK_S, owners(owner).tick, at_once=True))
    await clock.until(lambda: settled(three))
    assert ownership(owner).role == ASKS
    await history.place(owner, made(owner))


async def test_an_owner_with_a_stale_epoch_steps_down(three: list[Gateway], clock: Clock) -> None:
    owner, (other, _) = split(three)
    newer = OwnerEpoch(7, other.new_id.tag)
    ownership(other).elected(newer, clock())
    await clock.until(lambda: ownership(owner).seen >= newer)
    await clock.until(lambda: settled(three))


async def test_a_request_under_another_epoch_is_rejected_and_decided_alone(
    three: list[Gateway], clock: Clock, history: History
) -> None:
    owner, (other, _) = split(three)
    peer, asked = PeerIdentity(other.new_id.tag, ""), made(other)
    stale = Ask(1, "pool", OwnerEpoch(1, other.new_id.tag), sent(asked, 0.0), True, ())
    owners(owner)._on_batch(peer, BATCH.encode(Batch(owner.new_id.tag, [stale])))
    assert (len(shared(owner).decider), len(pool(owner).router.reservations)) == (0, 0)
    # An asker that is behind learns of the epoch with the rejection.
    shared(other).decider.epoch = OwnerEpoch(0, owner.new_id.tag)
    outcome = await history.place(other, asked)
    assert outcome.decision.decided_by in (ALONE, f"{owner.settings.peers.name}, epoch 1")  # type: ignore[union-attr]
    assert other.metrics.owner_asks.value("pool", "rejected") == 1


async def test_a_request_queued_at_the_owner_is_withdrawn_when_its_client_disconnects(
    three: list[Gateway], clock: Clock
) -> None:
    owner, (other, _) = split(three)
    many = [asyncio.create_task(pool(other).decide(made(other, 60_000), hold=True)) for _ in range(6)]
    await clock.until(lambda: len(pool(owner).router.waiting) > 0)
    for task in many:
        task.cancel()
    await clock.until(lambda: len(pool(owner).router.waiting) == 0)
    await asyncio.gather(*many, return_exceptions=True)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    with private_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
async def over_redis(
    redis: PrivateRedis, tmp_path: Path, clock: Clock, history: History
) -> AsyncIterator[list[Gateway]]:
    buses: list[RedisBus] = []

    def make() -> Bus:
        buses.append(patient_bus(redis.url, Keyring.of(tmp_path.name.encode())))
        return buses[-1]

    async with (
        ScriptedEngine() as one,
        fleet(tmp_path, snapshot([engine_entry("e1", one.url)]), "abc", make, clock) as gateways,
    ):
        yield gateways
    for bus in buses:
        bus.close()


async def test_flushall_changes_no_owner_and_epochs_continue_from_what_peers_have_seen(
    over_redis: list[Gateway], redis: PrivateRedis, clock: Clock
) -> None:
    owner, others = split(over_redis)
    with redis_client.Redis.from_url(redis.url) as server:
        server.flushall()
        await clock.passes(2.0)
        assert settled(over_redis)
        assert ownership(owner).seen == OwnerEpoch(1, owner.new_id.tag)
        await kill(owner)
        server.flushall()
    await clock.until(lambda: owned_by(others, 1))
    assert ownership(others[0]).seen.number == 2


async def test_a_gateway_that_has_seen_no_owner_is_elected_above_the_epochs_of_its_peers(
    over_redis: list[Gateway], redis: PrivateRedis, clock: Clock, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the bus nor the claimant knows an epoch: it started when the bus was flushed and the owner died."""
    owner, (newcomer, witness) = split(over_redis)
    assert newcomer.peering.links is not None
    newcomer.peering.links.on_notice(BEATS, lambda _peer, _body: None)
    monkeypatch.setattr(ownership(witness), "claims", lambda *_: (False, ""))
    await kill(owner)
    ownership(newcomer).seen = ownership(newcomer).promised = OwnerEpoch()
    with redis_client.Redis.from_url(redis.url) as server:
        server.flushall()
    await clock.until(lambda: len(history.elected) > 1)
    assert history.elected[-1] == OwnerEpoch(2, newcomer.new_id.tag)
    await clock.until(lambda: owned_by([newcomer, witness], 1))


def announces_another_port(gateway: Gateway) -> None:
    """Make it announce an address without a listener, like a gateway on the loopback of another machine."""
    listen = gateway.peering.listen

    async def listen_on_another_port() -> None:
        await listen()
        gateway.peering._address = f"127.0.0.1:{free_port()}"

    gateway.peering.listen = listen_on_another_port  # type: ignore[method-assign]


async def test_an_unreachable_lease_holder_loses_the_pool_to_connected_gateways(tmp_path: Path, clock: Clock) -> None:
    bus = InProcessBus()
    async with ScriptedEngine() as engine:
        topology = snapshot([engine_entry("e1", engine.url)])
        cut_off, *others = unstarted(tmp_path, topology, "wab", lambda: bus, clock)
        announces_another_port(cut_off)
        links = cut_off.peering.links
        assert links is not None
        links.set_peers = lambda *_: None  # type: ignore[method-assign]
        bus.claim(f"owner/{links.me.region}/pool", links.me.tag, seconds=60.0)
        async with started([cut_off, *others]):
            await clock.until(lambda: settled(others))
            await clock.passes(5.0)
            assert settled(others)
            assert ownership(cut_off).role == ALONE_ROLE


async def test_gateways_that_cannot_reach_each_other_report_it_instead_of_assuming_death(
    tmp_path: Path, clock: Clock
) -> None:
    bus = InProcessBus()
    async with ScriptedEngine() as engine:
        both = unstarted(tmp_path, snapshot([engine_entry("e1", engine.url)]), "ab", lambda: bus, clock)
        for gateway in both:
            announces_another_port(gateway)
        async with started(both):
            # One may claim the pool before its first call is rejected; then no other gateway asks it.
            await clock.until(lambda: UNREACHED in {ownership(item).reason for item in both})
            await clock.passes(5.0)
            roles = [role for gateway in both for role in reported_roles(gateway)]
            assert {(item.role, item.reason) for item in roles} <= {(ONLY, UNREACHED), (OWNER, "")}
            assert [item.decides_alone for item in roles].count(True) >= 1


def reported_roles(gateway: Gateway) -> tuple[PoolRole, ...]:
    """Return the gateway's role for the pool in its fleet sample."""
    (sampled,) = gateway._sampler.sample(time.monotonic(), time.time()).pools
    return sampled.roles


async def test_without_redis_the_owner_stays_and_no_other_is_elected(
    over_redis: list[Gateway], redis: PrivateRedis, clock: Clock, history: History
) -> None:
    owner, others = split(over_redis)
    redis.kill()
    try:
        await clock.until(lambda: not any(owners(item)._bus.connected for item in over_redis))
        await clock.passes(4.0)
        assert settled(over_redis)
        assert (await history.place(others[0], made(others[0]))).decision.decided_by.endswith("epoch 1")
        await kill(owner)
        await clock.passes(4.0)
        assert [ownership(other).role for other in others] == [ALONE_ROLE, ALONE_ROLE]
        assert (await history.place(others[0], made(others[0]))).decision.decided_by == ALONE
    finally:
        redis.start()
    await clock.until(lambda: owned_by(others, 1))
