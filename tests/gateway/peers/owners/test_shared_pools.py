"""Two gateways of one fleet over real links: one decides for both, and both know the running requests."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.gateway import Gateway
from gateway.pools.pool.live_pool import LivePool
from routing.values.decision import Dispatched
from routing.values.inference_request import InferenceRequest
from routing.values.observation import WHOLE, Completed, FirstToken, LoadResult
from tests.gateway.live_gateway import engine_entry, request, snapshot
from tests.gateway.peers.owners.shared_fleet import fleet, shared, split
from tests.gateway.scripted_engine import ScriptedEngine
from tests.patience import until


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[Gateway]]:
    async with ScriptedEngine() as one, ScriptedEngine() as other:
        engines = [engine_entry("e1", one.url), engine_entry("e2", other.url)]
        async with fleet(tmp_path, snapshot(engines)) as gateways:
            yield gateways


def pool(gateway: Gateway) -> LivePool:
    return gateway.pools["pool"]


def made(gateway: Gateway, tokens: int = 100, keys: tuple[int, ...] = ()) -> InferenceRequest:
    return request(gateway.new_id(), keys, tokens)


async def placed(gateway: Gateway, asked: InferenceRequest) -> Dispatched:
    outcome = await pool(gateway).decide(asked, hold=True)
    assert isinstance(outcome, Dispatched), outcome
    return outcome


async def test_the_owner_decides_for_both_and_both_account_for_it(two: list[Gateway]) -> None:
    owner, (other,) = split(two)
    asked = made(other)
    outcome = await placed(other, asked)
    assert outcome.decision.decided_by == f"{owner.settings.peers.name}, epoch 1"  # type: ignore[union-attr]
    for gateway in two:
        assert pool(gateway).router.reservations.get(asked.request_id) is not None
    pool(other).observe(FirstToken(asked.request_id))
    pool(other).observe(Completed(asked.request_id, 0))
    await until(lambda: len(pool(owner).router.reservations) == 0)
    assert len(pool(other).router.reservations) == 0
    assert len(shared(owner).decider) == 0
    assert other.metrics.owner_asks.value("pool", "answered") == 1


async def test_the_owner_decides_its_own_requests_like_a_single_gateway(two: list[Gateway]) -> None:
    owner, (other,) = split(two)
    assert pool(owner).answers_at_once
    assert not pool(other).answers_at_once
    outcome = await placed(owner, made(owner))
    assert outcome.decision.decided_by == ""


async def test_requests_through_both_gateways_spread_as_through_one(two: list[Gateway]) -> None:
    chosen = [(await placed(two[number % 2], made(two[number % 2], 4000))).decision.engine_id for number in range(6)]
    assert sorted(chosen) == ["e1"] * 3 + ["e2"] * 3


async def test_the_sample_names_the_owner_whose_figures_count_for_all(two: list[Gateway]) -> None:
    owner, (other,) = split(two)
    await placed(other, made(other, 5000))
    seen = {}
    for gateway in two:
        sample = gateway._sampler.sample(time.monotonic(), time.time())
        gateway._sampler.publish()
        (role,) = sample.pools[0].roles
        names = owner.settings.peers.name, gateway.settings.peers.name  # type: ignore[union-attr]
        assert (role.owner, role.gateway, role.epoch) == (*names, 1)
        seen[role.role] = sum(engine.in_flight_tokens for engine in sample.engines)
    assert seen == {"owner": 5000, "asks": 0}
    assert b'headway_load_cv{pool="pool"}' in owner.metrics.render()
    assert b'headway_load_cv{pool="pool"}' not in other.metrics.render()
    assert b'headway_pool_owner_epoch{pool="pool"} 1.0' in other.metrics.render()


async def test_the_owner_learns_what_engines_loaded_for_requests_of_others(two: list[Gateway]) -> None:
    owner, (other,) = split(two)
    keys, learned = tuple(range(40)), pool(owner).loads.learned
    learned.set_nodes({"e1": "a", "e2": "a"}, {"a": 4096, "b": 4096})
    load = LoadResult("b", WHOLE, ordered=40, blocks=40, size=40 * 4096, seconds=0.5)
    asked = made(other, 640, keys)
    await placed(other, asked)
    pool(other).observe(Completed(asked.request_id, 640, load))
    await until(lambda: [(home, node, rate.loads) for home, node, rate in learned.links()] == [("a", "b", 1)])
    # The owner plans with them, at each eighth block.
    assert (len(owner.kv_moves.hot), len(other.kv_moves.hot)) == (5, 0)
