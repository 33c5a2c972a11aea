"""Placement rules of the papers, each tested once through a live gateway."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.bus.snapshot_store import SnapshotStore
from routing.placements.lbgr import Lbgr
from routing.policy.admission_document import AdmissionDocument
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from routing.values import reasons
from routing.values.decision import Decision, Dispatched
from routing.values.feedback_events import Answered, Bound
from tests.gateway.fake_engine import fake_engine
from tests.gateway.live_gateway import SETTINGS, engine_entry, live_gateway, request, snapshot
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served
from tests.patience import until


async def chat(gateway: ServedGateway, text: str, session: str = "") -> int:
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": text}]}
    headers = {"authorization": "Bearer hw_test_key_of_tenant_a", **({"x-session-id": session} if session else {})}
    async with gateway.client.post(gateway.url + "/v1/chat/completions", json=body, headers=headers) as response:
        await response.read()
        return response.status


def policy(name: str, **params: Any) -> RoutingPolicy:
    return RoutingPolicy(placement=Stage(name=name, params=params))


async def decisions_of(name: str, state_dir: Path) -> list[Decision]:
    """Return eight decisions for requests that share a long prompt held by one engine."""
    keys = tuple(range(1, 5001))
    async with fake_engine() as one, fake_engine() as two, fake_engine() as three:
        engines = [engine_entry(f"e-{number}", engine.url) for number, engine in enumerate((one, two, three))]
        async with live_gateway(state_dir, snapshot(engines, policy=policy(name))) as live:
            live.pool.router.blocks_stored("e-1", keys)
            made = []
            for number in range(8):
                asked = request(f"r-{number}", (*keys, 9000 + number), 10_002 + 20_000 * number)
                outcome = await live.pool.decide(asked, hold=False)
                assert isinstance(outcome, Dispatched)
                made.append(outcome.decision)
            return made


async def test_mooncake_without_transfers_plans_no_fetch(tmp_path: Path) -> None:
    mooncake = await decisions_of("mooncake", tmp_path / "a")
    assert [item.fetch for item in mooncake] == [None] * 8
    assert len({item.engine_id for item in mooncake}) > 1


async def test_mooncake_serves_chats(tmp_path: Path) -> None:
    async with ScriptedEngine() as one, ScriptedEngine() as two:
        async with served([one.url, two.url], tmp_path, policy=policy("mooncake")) as gateway:
            answers = await asyncio.gather(*(chat(gateway, f"chat {number} " * 40) for number in range(8)))
        assert answers == [200] * 8
        assert len(one.bodies) + len(two.bodies) == 8


async def test_lbgr_learns_from_responses_of_live_engines(tmp_path: Path) -> None:
    async with ScriptedEngine() as one, ScriptedEngine() as two:
        one.pause_s = two.pause_s = 0.05
        async with served([one.url, two.url], tmp_path, policy=policy("lbgr")) as gateway:
            answers = [await chat(gateway, f"chat {number} " * 40) for number in range(6)]
            placement = gateway.pool.router.arms.live
            assert isinstance(placement, Lbgr)
            engines = dict(placement._engines)
        assert answers == [200] * 6
        assert engines
        assert all(any(engine.model.theta) and not engine.sent for engine in engines.values())


async def test_what_lbgr_learned_survives_a_restart(tmp_path: Path) -> None:
    settings = replace(SETTINGS, snapshot_refresh_s=0.05)
    async with fake_engine() as one:
        shot = snapshot([engine_entry("e-1", one.url)], policy=policy("lbgr"))
        async with live_gateway(tmp_path, shot, settings=settings) as live:
            asked = request("r-1", tuple(range(9)), 18)
            for event in (Bound(asked, "e-1", 0, 0.0), Answered(asked, "e-1", 7.0)):
                live.pool.router.arms.learn(event)
            kept = live.pool.router.arms.kept()
            store = SnapshotStore(tmp_path, 3600.0)
            await until(lambda: store.load(time.time()) is not None and store.learned == {"pool": kept})
        async with live_gateway(tmp_path, shot, settings=settings) as live:
            assert live.pool.router.arms.kept() == kept


async def test_skywalker_holds_requests_until_an_engine_has_nothing_pending(tmp_path: Path) -> None:
    async with ScriptedEngine() as one:
        one.pause_s = 0.05
        async with served([one.url], tmp_path, policy=policy("skywalker")) as gateway:
            answers = await asyncio.gather(*(chat(gateway, f"chat {number} " * 40) for number in range(4)))
            made = [item.decision for item in gateway.app.recent.of_engine("engine-0")]
        assert answers == [200] * 4
        assert sum(item.queued_s > 0.0 for item in made) >= 2
        assert {item.reason for item in made} == {reasons.FREE_MATCH}


async def test_skywalker_ch_keeps_each_session_on_one_engine(tmp_path: Path) -> None:
    rule = RoutingPolicy(
        placement=Stage(name="skywalker", params={"by": "session", "pending": "reported"}),
        order=Stage(name="fifo"),
        dispatch_limit=DispatchLimitDocument(mode="reported"),
        region_rule="skywalker_ch",
    )
    async with ScriptedEngine() as one, ScriptedEngine() as two, ScriptedEngine() as three:
        engines = [one, two, three]
        async with served([engine.url for engine in engines], tmp_path, policy=rule) as gateway:
            chosen: dict[str, set[str]] = {}
            for turn in range(3):
                for session in map(str, range(12)):
                    assert await chat(gateway, f"turn {turn} of {session}", session) == 200
            for number in range(3):
                for item in gateway.app.recent.of_engine(f"engine-{number}"):
                    assert item.decision.reason == reasons.SESSION_RING
                    chosen.setdefault(item.session_id, set()).add(item.decision.engine_id)
    assert len(chosen) == 12
    assert {len(engine_ids) for engine_ids in chosen.values()} == {1}
    assert len(set.union(*chosen.values())) > 1


async def test_queued_requests_leave_an_engine_delayed_by_its_decodes(tmp_path: Path) -> None:
    """DualMap A.8.3: nothing arrives, and the delay alone moves the waiting request."""
    rule = RoutingPolicy(
        placement=Stage(name="dual_map", params={"adaptive_key": False}),
        order=Stage(name="fifo"),
        ttft_slo_s=1.5,
        prefill_window_tokens=1,
        lookahead_s=0.0,
        bottleneck_s=0.5,
    )
    keys = tuple(range(1, 5001))
    async with fake_engine() as one, fake_engine() as two:
        for engine in (one, two):
            engine.set("/metrics", 404, b"")
        engines = [engine_entry(name, engine.url) for name, engine in (("e-1", one), ("e-2", two))]
        async with live_gateway(tmp_path, snapshot(engines, policy=rule)) as live:
            live.pool.router.blocks_stored("e-1", keys)
            first = await live.pool.decide(request("r-1", (*keys, 9001), 10_002), hold=True)
            second = await live.pool.decide(request("r-2", (*keys, 9002), 10_002), hold=True)
    assert isinstance(first, Dispatched)
    assert isinstance(second, Dispatched)
    assert (first.decision.engine_id, second.decision.engine_id) == ("e-1", "e-2")
    assert second.decision.reason == reasons.MIGRATED


@pytest.mark.parametrize(("decode_s", "status"), [(0.05, 200), (600.0, 429)])
async def test_a_pool_with_roles_predicts_decodes_by_the_uniform_time(
    tmp_path: Path, decode_s: float, status: int
) -> None:
    """Mooncake §4.3.4: the first request still decodes; the second prompt's prefill is expected to take long."""
    rule = RoutingPolicy(
        admission=AdmissionDocument(mode="predictive_system", decode_s=decode_s),
        prefill_cost=PrefillCostDocument(base_s=1.0, per_token_s=1e-9, per_token_squared_s=0.0, per_hit_token_s=0.0),
        decode_cost=DecodeCostDocument(base_s=0.0, per_sequence_s=0.08, per_context_token_s=0.0),
        tpot_slo_s=0.1,
        ttft_slo_s=60.0,
    )
    async with ScriptedEngine() as prefills, ScriptedEngine() as decodes:
        decodes.chunks, decodes.pause_s = ["a"] * 40, 0.1
        async with served([prefills.url, decodes.url], tmp_path, roles=["prefill", "decode"], policy=rule) as gateway:
            first = asyncio.create_task(chat(gateway, "one " * 40))
            await until(lambda: gateway.gateway.pools and len(gateway.pool.router.admission.book) == 1)
            decodes.chunks = ["a"]
            answers = await chat(gateway, "two " * 40)
            first.cancel()
    assert answers == status
