"""Callers that send requests to engines themselves: the decision carries the load, and their reports its result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.contracts.stored_decision import StoredDecision
from gateway.reports.decision_recorder import current_decision
from headway_client import AsyncHeadway, AsyncHeadwayTransport
from headway_client.clients import httpx
from kvstore.connector.engine_params import FIELD, LoadInstruction, order_in
from tests.gateway.kv.nodes.loading_engine import PARAMS
from tests.gateway.kv.nodes.test_loads_end_to_end import BLOCKS, Fleet, a_node, body, serving
from tests.gateway.requests.advisories.test_advisories_end_to_end import advise, policy
from tests.gateway.served_gateway import CHAT, KEY, OTHER_KEY
from tests.patience import until

ROUTE = "/api/v1/route"


@asynccontextmanager
async def routed(tmp_path: Path, **pool: Any) -> AsyncIterator[Fleet]:
    """Serve two engines with nodes to a key whose caller has reported a request."""
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, **pool) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            await fleet.gateway.report(await fleet.gateway.decided(), "complete")
            yield fleet


async def decision(fleet: Fleet, *, key: str = KEY, **fields: Any) -> dict[str, Any]:
    status, answer, _ = await fleet.gateway.post(ROUTE, body(**fields), key=key)
    assert status == 200, answer
    return dict(answer)


async def by_client(fleet: Fleet, headers: dict[str, str] | None = None, **fields: Any) -> tuple[str, StoredDecision]:
    """Send a request as the Python client does; return the answer's text and the record."""
    headway = AsyncHeadway(fleet.gateway.url, KEY, late_s=30.0)
    async with aclosing(headway), httpx.AsyncClient(transport=AsyncHeadwayTransport(headway)) as client:
        answer = await client.post(fleet.gateway.url + CHAT, json=body(**fields), headers=headers)
        assert answer.status_code == 200, answer.text
        record = fleet.gateway.app.recent.get(answer.headers["x-headway-decision"])
    assert record is not None
    await until(lambda: record.outcome)
    return answer.text, current_decision(record)


@pytest.mark.parametrize("streams", [False, True])
async def test_an_engine_loads_for_a_caller_that_sends_the_request_itself(tmp_path: Path, streams: bool) -> None:
    async with routed(tmp_path) as fleet:
        fleet.keep_out("engine-1")
        await until(lambda: fleet.gateway.pool.accepting == {"engine-0"})
        sent = {"stream": streams, "stream_options": {"include_usage": True} if streams else None}
        await by_client(fleet, **sent)
        await until(lambda: fleet.blocks("a") == BLOCKS)
        fleet.keep_out("engine-0")
        await until(lambda: fleet.gateway.pool.accepting == {"engine-1"})
        text, record = await by_client(fleet, **sent)
        assert fleet.engines["engine-1"].outcomes[0].loaded_blocks == BLOCKS
        assert record.load is not None
        assert (record.load.node, record.load.blocks, record.load.inferred) == ("a", BLOCKS, True)
        assert (fleet.loads("whole"), record.load.saved_tokens) == (1, 16 * BLOCKS)
        # The report would show the client where nodes are.
        assert FIELD not in text


@pytest.mark.parametrize("of_header", [False, True])
async def test_an_ephemeral_prompt_is_stored_on_no_node(tmp_path: Path, of_header: bool) -> None:
    async with routed(tmp_path) as fleet:
        headers = {"x-headway-cache-hint": "ephemeral"} if of_header else None
        await by_client(fleet, headers, **({} if of_header else {"cache_hint": "ephemeral"}))
        (order,) = [order for engine in fleet.engines.values() for order in engine.orders]
        assert (order.hint, len(order.routing_keys())) == ("ephemeral", BLOCKS)
        await by_client(fleet, messages=[{"role": "user", "content": "another prompt, which is kept; " * 4}])
        kept = [order for engine in fleet.engines.values() for order in engine.orders if order.hint == "default"]
        await until(lambda: fleet.blocks("a") + fleet.blocks("b") == len(kept[0].routing_keys()))


async def test_an_advisory_for_a_routed_session_moves_its_blocks_next_to_its_engine(tmp_path: Path) -> None:
    async with routed(tmp_path, policy=policy("gated")) as fleet:
        fleet.keep_out("engine-1")
        await until(lambda: fleet.gateway.pool.accepting == {"engine-0"})
        await by_client(fleet, session_id="s-1")
        await until(lambda: fleet.blocks("a") == BLOCKS)
        fleet.keep_out("engine-0")
        await until(lambda: fleet.gateway.pool.accepting == {"engine-1"})
        assert (await advise(fleet, expected_arrival_s=30))[1]["state"] == "prefetching"
        await until(lambda: fleet.blocks("b") == BLOCKS)
        _, record = await by_client(fleet, session_id="s-1")
        assert (record.load and (record.load.node, record.load.blocks)) == ("b", BLOCKS)
        assert (record.advisory and record.advisory.outcome) == "useful"


async def test_only_callers_that_report_pass_on_loads(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            await fleet.ask()
            await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
            first = await decision(fleet)
            order = instruction(first)
            assert (order.load_blocks, len(order.routing_keys()), first["predicted_hit_tokens"]) == (0, BLOCKS, 0)
            await fleet.gateway.report(first["decision_id"], "complete")
            order = instruction(await decision(fleet))
            assert (order.load_blocks, order.quiet) == (BLOCKS, True)


async def test_callers_that_keep_their_bodies_get_no_instruction(tmp_path: Path) -> None:
    async with routed(tmp_path) as fleet:
        await fleet.ask()
        await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
        status, of_haproxy, _ = await fleet.gateway.post(ROUTE, body(), headers={"x-headway-door": "haproxy"})
        assert status == 200
        for answer in (of_haproxy, await decision(fleet, merges=False)):
            record = fleet.gateway.app.recent.get(answer["decision_id"])
            assert record is not None
            assert (answer["body"], record.decision.fetch, record.load_ordered) == ({}, None, 0)


async def test_a_tenant_of_a_shared_cache_gets_the_hint_and_no_trace_of_others(tmp_path: Path) -> None:
    async with routed(tmp_path) as fleet:
        await fleet.ask()
        await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
        scoped = [
            msgspec.structs.replace(key, scopes=("infer", "route")) if key.key_id == "kb" else key
            for key in fleet.first.api_keys
        ]
        fleet.publish(api_keys=tuple(scoped))
        await until(lambda: fleet.gateway.gateway.snapshot.version == fleet.first.version)  # type: ignore[union-attr]
        before = await decision(fleet, key=OTHER_KEY)
        await fleet.gateway.report(before["decision_id"], "complete", key=OTHER_KEY)
        answer = await decision(fleet, key=OTHER_KEY, cache_hint="ephemeral")
        assert instruction(answer) == LoadInstruction(tenant="tenant-b", hint="ephemeral", quiet=True)
        record = fleet.gateway.app.recent.get(answer["decision_id"])
        assert record is not None
        assert record.decision.fetch is None


async def test_both_legs_of_a_pair_are_instructed_and_only_the_first_loads(tmp_path: Path) -> None:
    async with routed(tmp_path, roles=["prefill", "decode"]) as fleet:
        fleet.engines["engine-1"].node = ""
        await fleet.ask()
        await until(lambda: fleet.blocks("a") == BLOCKS)
        answer = await decision(fleet, cache_hint="ephemeral")
        legs = [answer["pair"][leg]["body"][PARAMS] for leg in ("prefill", "decode")]
        orders = [order_in(leg) for leg in legs]
        assert [order and (order.load_blocks, order.hint) for order in orders] == [
            (BLOCKS, "ephemeral"),
            (0, "ephemeral"),
        ]
        assert (legs[0]["do_remote_decode"], "do_remote_decode" in legs[1]) == (True, False)
        await fleet.gateway.report(answer["decision_id"], "handed_over", {"cached_tokens": 16 * BLOCKS})
        await until(lambda: fleet.loads("whole") == 1)


def instruction(answer: dict[str, Any]) -> LoadInstruction:
    order = order_in(answer["body"].get(PARAMS))
    assert order is not None
    return order
