"""While 200 versions go live in a row, each decision uses exactly one complete version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import draft, publish_version
from controlplane.publication.snapshot import publish
from gateway.bus.bus import Bus
from gateway.gateway import Gateway
from gateway.pools.pool.live_pool import LivePool
from routing.values.decision import Decision, Dispatched
from routing.values.observation import Completed
from tests.gateway.fake_engine import fake_engine
from tests.gateway.live_gateway import KEYRING, SETTINGS, request
from tests.patience import until

PUBLISHES = 200
ACTOR = program("test")
RULES = ("round_robin", "least_loaded")
"""Versions alternate, so that a decision shows by its reason which rule made it."""


def publish_next(policy: Policy, number: int) -> None:
    """Publish version `number`, with the placement of that number."""
    version = draft(policy, {"placement": {"name": RULES[number % 2]}, "queue_limit": number}, actor=ACTOR)
    assert version.number == number
    publish_version(version, instead_of=number - 1 if number > 1 else None, actor=ACTOR)


async def traffic(live: LivePool, storm_is_over: asyncio.Event) -> list[Decision]:
    """Place requests one after the other, half of them as queued requests, and return every decision."""
    decided: list[Decision] = []
    while not storm_is_over.is_set():
        name = f"r{len(decided)}"
        outcome = await live.decide(request(name), hold=len(decided) % 2 == 0)
        assert isinstance(outcome, Dispatched), "a publish cost a request"
        decided.append(outcome.decision)
        # The publisher's thread gets its turn while this request is under way.
        await asyncio.sleep(0.001)
        live.observe(Completed(request_id=name))
    return decided


@pytest.mark.django_db(transaction=True)
async def test_every_decision_during_200_publishes_has_exactly_one_version(
    bus: Bus, policy: Policy, pool: Pool, tmp_path: Path
) -> None:
    async with fake_engine() as one, fake_engine() as two:
        for name, engine in (("a", one), ("b", two)):
            await Engine.objects.acreate(
                pool=pool, engine_id=name, name=name, url=engine.url, connect_url=engine.url, desired_state="ready"
            )
        await sync_to_async(publish)()
        gateway = Gateway(bus, keyring=KEYRING, state_dir=tmp_path, settings=SETTINGS)
        await gateway.start()
        try:
            live = gateway.pools[pool.slug]
            storm_is_over = asyncio.Event()
            requests = asyncio.create_task(traffic(live, storm_is_over))
            for number in range(1, PUBLISHES + 1):
                await sync_to_async(publish_next)(policy, number)
            await until(lambda: live.router.policy_version == PUBLISHES)
            storm_is_over.set()
            decided = await requests
            assert live.router.policy.queue_limit == PUBLISHES
        finally:
            await gateway.stop()
    ruled = [decision for decision in decided if decision.policy_version > 0]
    assert all((item.placement, item.reason) == (RULES[item.policy_version % 2],) * 2 for item in ruled)
    versions = [decision.policy_version for decision in decided]
    assert versions == sorted(versions)
    assert len(set(versions)) > PUBLISHES // 2
