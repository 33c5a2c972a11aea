"""Engines, node managers and a gateway together: blocks arrive at a node before they are needed there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.contracts.kv_move import REPLICAS, TOPIC, KvMoveRow, ReplicaOrder, decode_orders, encode_replicas
from gateway.kv.moves import block_mover
from gateway.kv.moves.replica_orders import GOOD_S
from planning.kv_moves import replica_count
from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.kv.nodes.loading_engine import BLOCK_BYTES
from tests.gateway.kv.nodes.test_loads_end_to_end import BLOCKS, DEAR, Fleet, a_node, serving
from tests.patience import until

ONE_AT_A_TIME = RoutingPolicy(
    placement=Stage(name="mooncake"),
    prefill_cost=DEAR,
    dispatch_limit=DispatchLimitDocument(mode="in_flight", in_flight_limit=1),
)
OTHER = [{"role": "user", "content": "quite another prompt, which is long enough for blocks of its own; " * 4}]


class MoveRows:
    """The newest row of each order that the gateway reported."""

    def __init__(self, fleet: Fleet) -> None:
        self.rows: dict[str, KvMoveRow] = {}
        fleet.bus.subscribe(TOPIC, self._receive)

    def only(self) -> KvMoveRow:
        (row,) = self.rows.values()
        return row

    def _receive(self, _topic: str, value: bytes) -> None:
        for row in decode_orders(value):
            self.rows[row.order_id] = row


async def computed_on_engine_0(fleet: Fleet) -> None:
    """Have the first engine compute the prompt, then route nothing to the second one."""
    await until(lambda: fleet.holding("a") and fleet.holding("b"))
    fleet.keep_out("engine-1")
    await until(lambda: fleet.gateway.pool.accepting == {"engine-0"})
    await fleet.ask()
    await until(lambda: fleet.blocks("a") == BLOCKS)
    fleet.keep_out("engine-0")
    await until(lambda: fleet.gateway.pool.accepting == {"engine-1"})


def orders(fleet: Fleet, planner: str, outcome: str) -> float:
    return fleet.gateway.gateway.metrics.kv_moves.value(planner, outcome)


async def queued_behind_another(fleet: Fleet) -> tuple[asyncio.Task[Any], asyncio.Task[Any]]:
    """Keep the second engine busy and queue the prompt for it."""
    engine = fleet.engines["engine-1"]
    engine.free.clear()
    first = asyncio.create_task(fleet.ask(messages=OTHER))
    await until(lambda: len(engine.orders) == 1)
    waiting = asyncio.create_task(fleet.ask())
    await until(lambda: len(fleet.gateway.pool.router.waiting) == 1)
    return first, waiting


@pytest.mark.parametrize("silent", [False, True])
async def test_blocks_of_a_queued_request_are_prefetched_next_to_its_engine(tmp_path: Path, silent: bool) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=ONE_AT_A_TIME) as fleet:
            rows = MoveRows(fleet)
            await computed_on_engine_0(fleet)
            fleet.engines["engine-1"].silent = silent
            first, waiting = await queued_behind_another(fleet)
            await until(lambda: fleet.blocks("b") == BLOCKS)
            await until(lambda: orders(fleet, "prefetch", "moved") == 1)
            engine = fleet.engines["engine-1"]
            assert len(engine.orders) == 1, "the request was sent while its engine was busy"
            engine.free.set()
            await first
            _, record = await waiting
            assert (engine.orders[1].load_blocks, engine.orders[1].holders[0]) == (BLOCKS, other.address)
            load = record.load
            assert load is not None
            assert (load.node, load.blocks, load.saved_tokens) == ("b", BLOCKS, 16 * BLOCKS)
            assert load.inferred is silent
            await until(lambda: rows.rows and rows.only().worth == "useful")
            row = rows.only()
            assert (row.planner, row.source, row.target, row.outcome) == ("prefetch", "a", "b", "moved")
            assert (row.asked_blocks, row.blocks, row.bytes) == (BLOCKS, BLOCKS, BLOCKS * BLOCK_BYTES)
            assert (row.loads, row.saved_tokens, row.pool_id) == (1, 16 * BLOCKS, "pool")
            assert row.seconds > 0
            metrics = await fleet.gateway.metrics()
            assert 'headway_kv_moves_total{outcome="moved",planner="prefetch"} 1.0' in metrics
            saved = float(16 * BLOCKS)
            assert f'headway_kv_move_saved_tokens_total{{planner="prefetch"}} {saved}' in metrics
            fleet.gateway.gateway.kv_moves.book.check()


@pytest.mark.parametrize("silent", [False, True])
async def test_blocks_repeatedly_loaded_from_a_remote_node_are_replicated(tmp_path: Path, silent: bool) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            rows = MoveRows(fleet)
            fleet.engines["engine-1"].node = ""
            await computed_on_engine_0(fleet)
            fleet.engines["engine-1"].silent = silent
            for _ in range(30):
                fleet.gateway.pool.loads.learned.loaded("engine-1", "a", 1, BLOCK_BYTES, 0.5, time.monotonic())
            for _ in range(3):
                _, record = await fleet.ask()
                assert record.load is not None
                assert (record.load.node, record.load.blocks) == ("a", BLOCKS)
            await until(lambda: fleet.blocks("b") == BLOCKS)
            await until(lambda: orders(fleet, "replicate", "moved") == 1)
            _, record = await fleet.ask()
            assert record.load is not None
            assert (record.load.node, record.load.blocks) == ("b", BLOCKS)
            await until(lambda: rows.rows and rows.only().worth == "useful")
            row = rows.only()
            assert (row.planner, row.source, row.target, row.blocks) == ("replicate", "a", "b", BLOCKS)
            assert (row.loads, row.saved_tokens) == (1, 16 * BLOCKS)


async def test_a_cold_replica_is_dropped_and_the_other_copy_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_count, "COLD_S", 0.0)
    monkeypatch.setattr(block_mover, "UNREAD_S", 0.0)
    with a_node("a") as (_, one), a_node("b") as (manager, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            rows = MoveRows(fleet)
            fleet.engines["engine-1"].node = ""
            await computed_on_engine_0(fleet)
            for _ in range(30):
                fleet.gateway.pool.loads.learned.loaded("engine-1", "a", 1, BLOCK_BYTES, 0.5, time.monotonic())
            for _ in range(3):
                await fleet.ask()
            await until(lambda: orders(fleet, "replicate", "moved") == 1)
            await until(lambda: orders(fleet, "shrink", "freed") == 1)
            await until(lambda: fleet.blocks("b") == 0)
            assert (len(manager.store.catalog), manager.store.counts.shrunk) == (0, BLOCKS)
            await until(lambda: len(rows.rows) == 2)
            row = next(item for item in rows.rows.values() if item.planner == "shrink")
            assert (row.source, row.target, row.asked_blocks, row.blocks) == ("a", "b", BLOCKS, BLOCKS)
            assert (row.outcome, row.worth, row.bytes) == ("freed", "open", BLOCKS * BLOCK_BYTES)
            _, record = await fleet.ask()
            assert record.load is not None
            assert (record.load.node, record.load.blocks) == ("a", BLOCKS)
            await until(lambda: rows.rows[row.order_id].worth == "useless")
            assert 'headway_kv_moves_useless_total{planner="shrink"} 1.0' in await fleet.gateway.metrics()


async def test_an_order_whose_source_node_is_gone_fails_and_its_request_is_served(tmp_path: Path) -> None:
    with a_node("a") as (manager, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, policy=ONE_AT_A_TIME) as fleet:
            rows = MoveRows(fleet)
            await computed_on_engine_0(fleet)
            keys = fleet.engines["engine-0"].orders[0].routing_keys()
            for key in keys:
                record = manager.store.catalog.find(manager.store.catalog.called([key], 1)[0].facts.key)
                assert record is not None
                with manager.store.lock:
                    manager.store.catalog.forget(record)
            # The gateway does not know of it yet.
            first, waiting = await queued_behind_another(fleet)
            await until(lambda: rows.rows)
            assert (rows.only().outcome, rows.only().blocks, rows.only().worth) == ("missing", 0, "none")
            fleet.engines["engine-1"].free.set()
            await first
            _, decided = await waiting
            assert decided.outcome == "completed"


async def test_an_operators_number_of_copies_is_made_and_dropped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_mover, "UNREAD_S", 0.0)
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            fleet.engines["engine-1"].node = ""
            await computed_on_engine_0(fleet)
            prefix = f"{fleet.engines['engine-0'].orders[0].routing_keys()[-1]:016x}"

            def order(copies: int, at: float, key: str = prefix) -> None:
                value = encode_replicas(ReplicaOrder(pool_id="pool", at=at, prefix=key, copies=copies))
                fleet.bus.publish(REPLICAS + "pool", value)

            now = time.time()
            order(2, now - GOOD_S - 1)
            order(2, now - 2, "0" * 16)
            order(2, now - 1)
            await until(lambda: fleet.blocks("b") == BLOCKS)
            assert orders(fleet, "replicate", "moved") == 1
            order(1, now - 1)
            order(1, now)
            # The requests went to the first engine, so that its node keeps its copy.
            await until(lambda: fleet.blocks("b") == 0)
            assert (fleet.blocks("a"), orders(fleet, "shrink", "freed")) == (BLOCKS, 1)
