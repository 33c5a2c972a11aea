"""Engines, node managers and a gateway together: a session's KV moves before its request arrives."""

from __future__ import annotations

import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec

from gateway.contracts.stored_decision import StoredDecision
from routing.policy.policy_document import AdvisoryRule, RoutingPolicy, Stage
from routing.values import reasons
from tests.gateway.kv.moves.test_orders_end_to_end import MoveRows
from tests.gateway.kv.nodes.test_loads_end_to_end import BLOCKS, DEAR, PROMPT, Fleet, a_node, serving
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY
from tests.patience import until

ADVISORIES = "/api/v1/advisories"
TOKENS = "/api/v1/advisory_tokens"


def policy(rule: AdvisoryRule, *, engine_prefetch: bool = False) -> RoutingPolicy:
    return RoutingPolicy(
        placement=Stage(name="least_cost"), prefill_cost=DEAR, advisories=rule, engine_prefetch=engine_prefetch
    )


async def first_turn_on_engine_0(fleet: Fleet) -> None:
    """Have the first engine compute the session's first turn, then exclude it from routing."""
    await until(lambda: fleet.holding("a") and fleet.holding("b"))
    fleet.keep_out("engine-1")
    await until(lambda: fleet.gateway.pool.accepting == {"engine-0"})
    await fleet.ask(session_id="s-1")
    await until(lambda: fleet.blocks("a") == BLOCKS)
    fleet.keep_out("engine-0")
    await until(lambda: fleet.gateway.pool.accepting == {"engine-1"})


async def advise(fleet: Fleet, *, key: str = KEY, **fields: Any) -> tuple[int, dict[str, Any]]:
    status, answer, _ = await fleet.gateway.post(ADVISORIES, {"session_id": "s-1", **fields}, key=key)
    return status, answer


def outcomes(fleet: Fleet, outcome: str) -> float:
    return fleet.gateway.gateway.metrics.advisories.value("pool", outcome)


async def asked(fleet: Fleet) -> StoredDecision:
    _, record = await fleet.ask(session_id="s-1")
    return record


async def test_a_sessions_kv_is_at_its_engine_before_its_request_arrives(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            rows = MoveRows(fleet)
            await first_turn_on_engine_0(fleet)
            status, answer = await advise(fleet, expected_arrival_s=30)
            assert (status, answer) == (202, {"session_id": "s-1", "state": "prefetching"})
            await until(lambda: fleet.blocks("b") == BLOCKS)
            await until(lambda: bool(rows.rows))
            status, state = await fleet.gateway.get(f"{ADVISORIES}/s-1")
            assert (status, state["state"], state["moved_blocks"]) == (200, "reserved", BLOCKS)
            record = await asked(fleet)
            assert record.decision.engine_id == "engine-1"
            assert record.decision.reason == reasons.ADVISED
            assert record.load is not None
            assert (record.load.node, record.load.blocks, record.load.saved_tokens) == ("b", BLOCKS, 16 * BLOCKS)
            stored = record.advisory
            assert stored is not None
            assert (stored.held_by, stored.moved_to, stored.moved_blocks) == ("a", "b", BLOCKS)
            assert (stored.outcome, stored.expected_s) == ("useful", 30.0)
            assert stored.lead_s > 0
            await until(lambda: rows.only().worth == "useful")
            row = rows.only()
            assert (row.planner, row.source, row.target, row.outcome) == ("advisory", "a", "b", "moved")
            assert row.saved_tokens == 16 * BLOCKS
            assert outcomes(fleet, "useful") == 1
            tallies = fleet.gateway.gateway.advisories.tallies()
            source, pool = tallies.sources[0], tallies.pools[0]
            assert (source.received, source.outcomes, source.saved_tokens) == (1, {"useful": 1}, 16 * BLOCKS)
            assert source.bytes_moved == row.bytes
            assert (pool.sessions, pool.requests, pool.loads) == (2, 2, 1)


async def test_after_the_move_the_engine_prefetches_from_its_own_node(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        into_engines = policy("gated", engine_prefetch=True)
        async with serving(tmp_path, {"a": one, "b": other}, policy=into_engines) as fleet:
            await first_turn_on_engine_0(fleet)
            await advise(fleet, expected_arrival_s=30, priority=3)
            metric = fleet.gateway.gateway.metrics.engine_prefetches
            await until(lambda: metric.value("pool", "loaded") == 1)
            (order,) = fleet.engines["engine-1"].orders
            assert (order.prefetch_rank, order.load_blocks, order.holders) == (3, BLOCKS, [])
            assert len(order.routing_keys()) == BLOCKS
            _, state = await fleet.gateway.get(f"{ADVISORIES}/s-1")
            assert (state["moved_blocks"], state["engine_blocks"]) == (BLOCKS, BLOCKS)
            stored = (await asked(fleet)).advisory
            assert stored is not None
            assert (stored.outcome, stored.engine_blocks) == ("useful", BLOCKS)
            (source,) = fleet.gateway.gateway.advisories.tallies().sources
            assert source.engine_bytes == BLOCKS * 1024
            await until(lambda: not len(fleet.gateway.gateway.advisories.prefetches))


async def test_an_engine_gets_one_prefetch_at_a_time_and_urgent_sessions_first(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        into_engines = policy("gated", engine_prefetch=True)
        async with serving(tmp_path, {"a": one, "b": other}, policy=into_engines) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            fleet.keep_out("engine-0")
            await until(lambda: fleet.gateway.pool.accepting == {"engine-1"})
            for number in range(4):
                await fleet.ask(session_id=f"s-{number}")
            await until(lambda: fleet.blocks("b") == BLOCKS)
            engine = fleet.engines["engine-1"]
            engine.orders.clear()
            engine.free.clear()
            for number, priority in enumerate([5, 7, 1, 3]):
                await advise(fleet, session_id=f"s-{number}", expected_arrival_s=30, priority=priority)
            await until(lambda: len(engine.orders) == 1)
            assert len(fleet.gateway.gateway.advisories.prefetches) == 4
            headers = {"authorization": f"Bearer {KEY}"}
            async with fleet.gateway.client.delete(f"{fleet.gateway.url}{ADVISORIES}/s-3", headers=headers) as answer:
                assert answer.status == 200
            engine.free.set()
            await until(lambda: len(engine.orders) == 3)
            assert [order.prefetch_rank for order in engine.orders] == [5, 1, 7], "the third one was withdrawn"
            await until(lambda: not len(fleet.gateway.gateway.advisories.prefetches))


async def test_a_policy_without_advisories_moves_and_remembers_nothing(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("off")) as fleet:
            await first_turn_on_engine_0(fleet)
            assert await advise(fleet) == (202, {"session_id": "s-1", "state": "unknown"})
            record = await asked(fleet)
            assert (record.advisory, len(fleet.gateway.gateway.advisories.sessions)) == (None, 0)
            assert record.load is not None
            assert record.load.node == "a"


async def test_a_tenant_cannot_touch_another_tenants_session(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)
            assert await advise(fleet, key=OTHER_KEY) == (202, {"session_id": "s-1", "state": "unknown"})
            assert (await advise(fleet))[1]["state"] == "prefetching"
            status, state = await fleet.gateway.get(f"{ADVISORIES}/s-1", key=OTHER_KEY)
            assert (status, state["state"]) == (200, "none")
            await fleet.gateway.post(ADVISORIES, {"session_id": "s-1", "priority": 0}, key=OTHER_KEY)
            headers = {"authorization": f"Bearer {OTHER_KEY}"}
            async with fleet.gateway.client.delete(f"{fleet.gateway.url}{ADVISORIES}/s-1", headers=headers) as answer:
                assert (await answer.json())["withdrawn"] is False
            assert len(fleet.gateway.gateway.advisories) == 1


async def test_guessing_another_sessions_prompt_reveals_no_move(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)
            answers, states = list[Any](), list[Any]()
            for session, prompt in (("right", PROMPT), ("wrong", PROMPT.upper())):
                message = {"role": "user", "content": prompt}
                route = {"model": MODEL, "session_id": session, "wait": False, "messages": [message]}
                _, answer, _ = await fleet.gateway.post("/api/v1/route", route, key=OTHER_KEY)
                # Its blocks would count as coming to the engine.
                await fleet.gateway.post(f"/api/v1/requests/{answer['decision_id']}/cancel", {}, key=OTHER_KEY)
                advisory = {"session_id": session, "expected_arrival_s": 30}
                answers.append((await fleet.gateway.post(ADVISORIES, advisory, key=OTHER_KEY))[1]["state"])
            await until(lambda: fleet.blocks("b") == BLOCKS)
            for session in ("right", "wrong"):
                states.append((await fleet.gateway.get(f"{ADVISORIES}/{session}", key=OTHER_KEY))[1])
            assert answers == ["reserved", "reserved"]
            assert [set(state) for state in states] == [{"session_id", "state", "expected_in_s", "expires_in_s"}] * 2


async def test_a_page_with_a_token_can_advise_only_for_its_session(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)
            status, minted, _ = await fleet.gateway.post(TOKENS, {"session_id": "s-1"})
            assert status == 201
            assert 800 < minted["expires_at"] - time.time() < 1000
            text, plain = {"token": minted["token"]}, {"content-type": "text/plain;charset=UTF-8"}
            sent = msgspec.json.encode(text)
            status, answer, _ = await fleet.gateway.post(ADVISORIES, sent, key=None, headers=plain)
            assert (status, answer["state"]) == (202, "prefetching")
            other_session = msgspec.json.encode({**text, "session_id": "s-2"})
            status, answer, _ = await fleet.gateway.post(ADVISORIES, other_session, key=None, headers=plain)
            assert (status, answer["error"]["code"]) == (403, "other_session")
            for path in ("/v1/chat/completions", "/api/v1/route", TOKENS):
                status, _, _ = await fleet.gateway.post(path, {"model": "tiny"}, key=minted["token"])
                assert status == 401, path
            broken = msgspec.json.encode({"token": minted["token"][:-2] + "xx"})
            status, answer, _ = await fleet.gateway.post(ADVISORIES, broken, key=None, headers=plain)
            assert (status, answer["error"]["code"]) == (401, "invalid_advisory_token")
            held = b64decode(minted["token"].removeprefix("at_").partition(".")[0] + "===", b"-_")
            assert b"s-1" in held
            assert not [name for name in (b"tenant-a", b'"ka"', b"tiny") if name in held], "the page sees whose it is"


async def test_a_withdrawn_advisory_reserves_nothing(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=policy("gated")) as fleet:
            await first_turn_on_engine_0(fleet)
            await advise(fleet)
            assert len(fleet.gateway.pool.router.advised.sessions) == 1
            headers = {"authorization": f"Bearer {KEY}"}
            async with fleet.gateway.client.delete(f"{fleet.gateway.url}{ADVISORIES}/s-1", headers=headers) as answer:
                assert (await answer.json())["withdrawn"] is True
            assert len(fleet.gateway.pool.router.advised.sessions) == len(fleet.gateway.gateway.advisories) == 0
            assert (await asked(fleet)).advisory is None
            assert outcomes(fleet, "withdrawn") == 1
