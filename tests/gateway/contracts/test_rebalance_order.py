"""Rebalancing orders are validated, followed once, and dropped when they are no longer renewed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.contracts.rebalance_order import GOOD_S, MAX_MOVES, MoveOrder, RebalanceOrder, decode_order, encode_order
from gateway.contracts.wire import UnreadableMessageError
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.fake_engine import fake_engine
from tests.gateway.live_gateway import engine_entry, live_gateway, request, snapshot
from tests.patience import until

DUAL = RoutingPolicy(placement=Stage(name="dual_map"), order=Stage(name="fifo"))
KEY = 0xABCDEF


def order(**fields: Any) -> RebalanceOrder:
    known: dict[str, Any] = {"pool_id": "pool", "at": 1000.0, "fence": 3, "widened": {f"{KEY:016x}": 3}}
    return RebalanceOrder(**{**known, **fields})


def test_a_decoded_order_has_its_keys_as_numbers() -> None:
    moves = (MoveOrder("a", 2),)
    read, widened = decode_order(encode_order(order(moves=moves)))
    assert widened == {KEY: 3}
    assert read.moves == moves


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff",
        msgspec.msgpack.encode({"pool_id": 1}),
        encode_order(order(widened={"no hex": 2})),
        encode_order(order(widened={"ab": 0})),
        encode_order(order(widened={"ab": 99})),
        encode_order(order(widened={f"{n:016x}": 2 for n in range(1001)})),
        encode_order(order(moves=tuple(MoveOrder("a", 1) for _ in range(MAX_MOVES + 1)))),
    ],
)
def test_malformed_and_out_of_bounds_orders_are_rejected(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_order(data)


async def test_a_pool_follows_newer_orders_of_the_newest_holder_until_they_expire(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        entries = [engine_entry(name, engine.url) for name in "abc"]
        async with live_gateway(tmp_path, snapshot(entries, policy=DUAL)) as live:
            now = time.time()
            live.bus.publish("rebalance/pool", encode_order(order(at=now)))
            await until(lambda: live.pool.router.view.roster.widened == {KEY: 3})
            live.pool.rebalancing.follow(order(at=now + 1, fence=2), {}, now + 1)
            live.pool.rebalancing.follow(order(at=now - 1, fence=3), {}, now)
            assert live.pool.router.view.roster.widened == {KEY: 3}
            live.pool.rebalancing.follow(order(at=now + 1, fence=4), {KEY: 4}, now + 1)
            assert live.pool.router.view.roster.widened == {KEY: 4}
            live.pool.rebalancing.evaluate(now + GOOD_S)
            assert live.pool.router.view.roster.widened == {KEY: 4}
            live.pool.rebalancing.evaluate(now + 2 + GOOD_S)
            assert live.pool.router.view.roster.widened == {}


async def test_the_busiest_prefixes_are_reported_if_the_placement_tracks_them(tmp_path: Path) -> None:
    async with fake_engine() as engine:
        entries = [engine_entry(name, engine.url) for name in "abc"]
        async with live_gateway(tmp_path, snapshot(entries, policy=DUAL)) as live:
            placed = request("r1", keys=(11, 12, 13, 14), prompt_tokens=5000)
            dispatched = await live.pool.decide(placed, hold=False)
            assert live.pool.sticky_placement is not None
            prefix = live.pool.sticky_placement.prefix_of(placed)
            live.pool.progress.dispatched(dispatched.decision, time.monotonic(), prefix)
            await until(lambda: live.sample().pools[0].prefixes)
            prefixes = live.sample().pools[0]
            assert (prefixes.usual_d, prefixes.prefixes[0].key) == (2, f"{prefix:016x}")
            assert set(prefixes.prefixes[0].work_s_by_engine) == {dispatched.decision.engine_id}
