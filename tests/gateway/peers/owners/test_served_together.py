"""Clients of two gateways that share a pool get correct responses from whichever a balancer chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.base.peer_settings import PeerSettings
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.bus.follower_bus import FollowerBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.peers.owners.shared_fleet import Clock, owners, settled, split
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served, snapshot
from tests.patience import until

ASKED = {"model": MODEL, "token_ids": list(range(160)), "wait": False}


@pytest.fixture
async def owner_and_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ServedGateway, ServedGateway]]:
    monkeypatch.setattr("gateway.peers.links.request_claims.CLAIM_WAIT_S", 20.0)
    monkeypatch.setattr("gateway.peers.links.peer_calls.ANSWER_S", 20.0)
    bus, clock, both = InProcessBus(), Clock(), []
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(ScriptedEngine())).url for _ in range(2)]
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot(urls)))
        for name in ("one", "other"):
            settings = GatewaySettings(probe_interval_s=0.1, peers=PeerSettings(name=name))
            gateway = served([], tmp_path / name, bus=FollowerBus(bus, name), gateway_settings=settings)
            both.append(await stack.enter_async_context(gateway))
            owners(both[-1].gateway).clock = clock
        await clock.until(lambda: settled([item.gateway for item in both]))
        owner, _ = split([item.gateway for item in both])
        both.sort(key=lambda item: item.gateway is not owner)
        yield both[0], both[1]


async def test_a_request_through_the_other_gateway_is_served_there_and_counted_at_owner(
    owner_and_other: tuple[ServedGateway, ServedGateway],
) -> None:
    owner, other = owner_and_other
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    status, answer, headers = await other.post("/v1/chat/completions", asked)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello")
    record = other.app.recent.get(headers["x-headway-decision"])
    assert record is not None
    assert (record.outcome, record.decision.decided_by) == (
        "completed",
        "one, epoch 1" if _first(owner) else "other, epoch 1",
    )
    await until(lambda: len(owner.pool.router.reservations) == 0)
    assert len(other.pool.router.reservations) == 0


def _first(gateway: ServedGateway) -> bool:
    peers = gateway.gateway.settings.peers
    return peers is not None and peers.name == "one"


@pytest.mark.parametrize("decides", [0, 1], ids=["the owner decides", "the other decides"])
async def test_feedback_explanations_and_repetitions_work_at_either_gateway(
    owner_and_other: tuple[ServedGateway, ServedGateway], decides: int
) -> None:
    owner = owner_and_other[0]
    first, second = owner_and_other[decides], owner_and_other[1 - decides]
    named = {"x-request-id": "job-1"}
    made = (await first.post("/api/v1/route", ASKED, headers=named))[1]
    assert (await second.post("/api/v1/route", ASKED, headers=named))[1] == made
    name = made["decision_id"]
    assert list(owner.pool.router.reservations.by_id) == [name]
    assert await second.get(f"/api/v1/explain/{name}") == await first.get(f"/api/v1/explain/{name}")
    for verb in ("first_token", "complete"):
        assert (await second.post(f"/api/v1/requests/{name}/{verb}", {}))[0] == 200
    await until(lambda: len(owner.pool.router.reservations) == 0)
