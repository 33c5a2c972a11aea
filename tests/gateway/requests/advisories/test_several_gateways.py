"""Two gateways of one pool: the deciding one keeps an advisory's state, and both report it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from gateway.base.peer_settings import PeerSettings
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.bus.follower_bus import FollowerBus
from gateway.contracts.advisory import PEER_TOPIC, Advisory, PeerAdvisory, encode_peer
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.requests.advisories.advisories import MAX_AGE_S, Advisories
from gateway.requests.advisories.advisory_exchange import AdvisoryExchange
from kvstore.transfer.shared_secret import NodeAccess
from routing.policy.policy_document import RoutingPolicy
from routing.values import reasons
from tests.gateway.kv.nodes.loading_engine import LoadingEngine
from tests.gateway.kv.nodes.test_loads_end_to_end import BLOCKS, Fleet, a_node
from tests.gateway.peers.owners.shared_fleet import Clock, kill, owners, settled, split
from tests.gateway.requests.advisories.test_advisories_end_to_end import advise, asked, policy
from tests.gateway.served_gateway import served, snapshot
from tests.kvstore.kv_blocks import KEYRING
from tests.patience import until

OWNER, OTHER = 0, 1
SESSION = Advisory(tenant_id="tenant-a", session_id="s-1", source="ka")


@asynccontextmanager
async def two(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, rules: RoutingPolicy | None = None
) -> AsyncIterator[list[Fleet]]:
    """Serve two engines with one node each through two gateways; the pool's owner comes first."""
    monkeypatch.setattr("routing.chain.owner_decider.ANSWER_S", 20.0)
    bus, clock = InProcessBus(), Clock()
    async with AsyncExitStack() as stack:
        nodes = [stack.enter_context(a_node(name))[1] for name in ("a", "b")]
        engines = [await stack.enter_async_context(LoadingEngine(item.address)) for item in nodes]
        plain = snapshot([item.url for item in engines], policy=rules or policy("symphony"))
        homes = [
            msgspec.structs.replace(engine, kv_node=node.name)
            for engine, node in zip(plain.engines, nodes, strict=True)
        ]
        first = msgspec.structs.replace(plain, engines=tuple(homes), kv_nodes=tuple(nodes))
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(first))
        gateways = []
        for name in ("one", "other"):
            settings = GatewaySettings(
                probe_interval_s=0.1, kv_access=NodeAccess(KEYRING), peers=PeerSettings(name=name)
            )
            made = served([], state_dir / name, bus=FollowerBus(bus, name), gateway_settings=settings)
            gateways.append(await stack.enter_async_context(made))
            owners(gateways[-1].gateway).clock = clock
        await clock.until(lambda: settled([gateway.gateway for gateway in gateways]))
        owner, _ = split([gateway.gateway for gateway in gateways])
        gateways.sort(key=lambda gateway: gateway.gateway is not owner)
        by_id = {f"engine-{number}": entry for number, entry in enumerate(engines)}
        fleets = [Fleet(gateway, by_id, first, bus) for gateway in gateways]
        for fleet in fleets:
            await until(lambda fleet=fleet: fleet.holding("a") and fleet.holding("b"))  # type: ignore[misc]
        try:
            yield fleets
        finally:
            for engine in engines:
                engine.close()


async def leave_out(fleets: list[Fleet], *engine_ids: str) -> None:
    """Drain only these engines, and return when both gateways have applied it."""
    fleets[OWNER].keep_out(*engine_ids)
    left = {"engine-0", "engine-1"} - set(engine_ids)
    await until(lambda: all(fleet.gateway.pool.accepting == left for fleet in fleets))


async def first_turn(fleets: list[Fleet], through: int) -> None:
    """Have the first engine compute the session's first turn, then exclude it from routing."""
    await leave_out(fleets, "engine-1")
    await fleets[through].ask(session_id="s-1")
    await until(lambda: all(fleet.blocks("a") == BLOCKS for fleet in fleets))
    await leave_out(fleets, "engine-0")


def of(fleet: Fleet) -> Advisories:
    return fleet.gateway.gateway.advisories


def announced(fleet: Fleet) -> int:
    """Return how many sessions the gateway's router expects. Those that only keep their engine do not count."""
    router = fleet.gateway.pool.router
    return sum(router.advised.sessions.sessions_at(target) for target in range(len(router.view.roster.engine_ids)))


@pytest.mark.parametrize(
    ("served_by", "receiver", "state"),
    [(OTHER, OWNER, "prefetching"), (OWNER, OTHER, "unknown"), (OTHER, OTHER, "forwarded")],
    ids=["served by the other", "told to the other", "both by the other"],
)
async def test_the_owner_knows_the_engine_of_a_session_that_asks_through_the_other_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served_by: int, receiver: int, state: str
) -> None:
    async with two(tmp_path, monkeypatch) as fleets:
        owner, other = fleets
        await first_turn(fleets, served_by)
        assert await advise(fleets[receiver], expected_arrival_s=30) == (202, {"session_id": "s-1", "state": state})
        await until(lambda: len(of(owner)) == 1)
        assert len(of(other)) == announced(other) == 0
        await until(lambda: owner.blocks("b") == other.blocks("b") == BLOCKS)
        await until(lambda: next(iter(of(owner)._open.values())).move == "came")
        # The first engine has all in its memory: without the reservation it would be chosen.
        await leave_out(fleets)
        record = await asked(other)
        assert (record.decision.engine_id, record.decision.reason) == ("engine-1", reasons.ADVISED)
        assert record.load is not None
        assert (record.load.node, record.load.saved_tokens) == ("b", 16 * BLOCKS)
        assert record.advisory is not None
        assert (record.advisory.outcome, record.advisory.moved_to) == ("useful", "b")
        assert len(of(owner)) == announced(owner) == 0
        assert owner.gateway.gateway.metrics.advisories.value("pool", "useful") == 1


async def test_a_withdrawal_reaches_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(tmp_path, monkeypatch) as fleets:
        owner, other = fleets
        await first_turn(fleets, OTHER)
        await advise(owner)
        assert len(of(owner)) == 1
        other.gateway.gateway.advisory_exchange.withdraw(SESSION)
        await until(lambda: len(of(owner)) == 0)
        assert announced(owner) == 0


async def test_after_the_owner_dies_the_other_accepts_advisories_for_sessions_it_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path, monkeypatch) as fleets:
        owner, other = fleets
        await first_turn(fleets, OTHER)
        clock = owners(other.gateway.gateway).clock
        assert isinstance(clock, Clock)
        await kill(owner.gateway.gateway)
        await clock.until(lambda: of(other).decides(SESSION))
        assert (await advise(other))[1]["state"] == "prefetching"
        await until(lambda: other.blocks("b") == BLOCKS)
        record = await asked(other)
        assert record.decision.reason == reasons.ADVISED
        assert len(of(other)) == announced(other) == 0


async def test_overtaken_and_expired_advisories_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(tmp_path, monkeypatch) as fleets:
        owner = fleets[OWNER]
        await first_turn(fleets, OWNER)
        exchange: AdvisoryExchange = owner.gateway.gateway.advisory_exchange
        exchange._wall = lambda: 1000.0

        def receive(said_at: float, lead_s: float, *, withdrawn: bool = False) -> None:
            advisory = msgspec.structs.replace(SESSION, expected_arrival_s=lead_s)
            exchange._take(encode_peer(PeerAdvisory("another", advisory, said_at, withdrawn)))

        now = [of(owner)._clock() + 100.0]
        of(owner)._clock = lambda: now[0]
        receive(1000.0 - MAX_AGE_S - 1, 30.0)
        assert len(of(owner)) == 0, "too old"
        receive(999.0, 30.0)
        receive(998.0, 40.0)
        assert of(owner)._open.popitem()[1].advisory.expected_arrival_s == 30.0, "the newest wins"
        receive(999.0, 30.0)
        receive(998.0, 0.0, withdrawn=True)
        assert len(of(owner)) == 1, "a withdrawal ends no newer advisory"
        receive(999.5, 0.0, withdrawn=True)
        assert len(of(owner)) == 0
        await leave_out(fleets)
        await asked(owner)
        receive(999.0, 30.0)
        assert len(of(owner)) == announced(owner) == 0, "its request was there first"


async def test_a_gateway_that_no_longer_decides_drops_its_state_and_blames_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path, monkeypatch) as fleets:
        owner = fleets[OWNER]
        await first_turn(fleets, OWNER)
        await advise(owner)
        of(owner)._decides = lambda _pool_id: False
        of(owner).sweep()
        assert len(of(owner)) == announced(owner) == 0
        assert of(owner).limits.trust("tenant-a", "ka", of(owner)._clock()).useful_share == 1.0
        received = list[bytes]()
        unsubscribe = owner.bus.subscribe(PEER_TOPIC, lambda _topic, value: received.append(value))
        assert (await advise(owner))[1]["state"] == "forwarded"
        assert len(received) == 1
        unsubscribe()
