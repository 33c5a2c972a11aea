"""Costs of requests are learned, reported over the bus, and applied when a snapshot returns them."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.base.metrics import GatewayMetrics
from gateway.bus.bus import InProcessBus
from gateway.contracts.wire import UnreadableMessageError
from gateway.reports.cost_reports import TOPIC, CostReport, CostReports, decode_cost_report
from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.live_gateway import engine_entry, live_gateway, request, snapshot
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

ROUTE = "/api/v1/route"
SLOW = FittedCost(
    prefill=PrefillCost(base_s=1.0), samples=200, error=0.1, policy_error=0.9, decode=DecodeCost(), speeds={"a": 0.5}
)


def encoded(**changes: Any) -> bytes:
    fitted = msgspec.structs.replace(SLOW, **changes)
    return msgspec.msgpack.encode(CostReport({"pool": {"": fitted}}))


async def test_feedback_becomes_a_report(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        received: list[bytes] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _, value: received.append(value))
        gateway.gateway.cost_reports.report()
        assert received == []
        # A caller without reports has no expected duration: the first one is no sample.
        for _ in range(2):
            _, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1, 2]})
            name = answer["decision_id"]
            await gateway.post(f"/api/v1/requests/{name}/first_token")
            await gateway.post(f"/api/v1/requests/{name}/complete", {"cached_tokens": 0, "output_tokens": 20})
        gateway.gateway.cost_reports.report()
        gateway.gateway.cost_reports.report()
        (report,) = map(decode_cost_report, received)
        assert report.pools["pool"][""].samples == 1
        assert 'headway_cost_samples_total{pool="pool",result="taken"} 1.0' in await gateway.metrics()


async def test_a_failed_request_teaches_nothing(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        for _ in range(2):
            _, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "block_hashes": [1, 2]})
            await gateway.post(f"/api/v1/requests/{answer['decision_id']}/fail")
        assert gateway.pool.costs.fitted() == {}
        gateway.pool.costs.check()


@pytest.mark.parametrize(("cost", "expected"), [("fixed", 0.018), ("fitted", 2.0)])
async def test_a_learned_cost_is_used_if_the_policy_enables_it(tmp_path: Path, cost: str, expected: float) -> None:
    policy = RoutingPolicy(cost=cost)  # type: ignore[arg-type]
    first = snapshot([engine_entry("a", "http://127.0.0.1:9")], policy=policy, costs={"": SLOW})
    async with live_gateway(tmp_path, first) as gateway:
        target = gateway.pool.router.fleet.known_target("a")
        seconds = gateway.pool.router.view.compute_s(request("r"), target, 0)
        assert seconds == pytest.approx(expected, rel=0.1)


async def test_a_cost_that_is_not_better_is_not_used(tmp_path: Path) -> None:
    worse = msgspec.structs.replace(SLOW, error=0.9)
    policy = RoutingPolicy(cost="fitted")
    first = snapshot([engine_entry("a", "http://127.0.0.1:9")], policy=policy, costs={"": worse})
    async with live_gateway(tmp_path, first) as gateway:
        target = gateway.pool.router.fleet.known_target("a")
        assert gateway.pool.router.view.compute_s(request("r"), target, 0) < 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"prefill": PrefillCost(per_token_s=math.nan)},
        {"prefill": PrefillCost(base_s=-1.0)},
        {"decode": DecodeCost(base_s=math.inf)},
        {"error": math.nan},
        {"speeds": {"a": 11.0}},
        {"speeds": {"a": math.nan}},
        {"samples": -1},
    ],
)
def test_impossible_figures_are_rejected_with_their_path(changes: dict[str, Any]) -> None:
    with pytest.raises(UnreadableMessageError, match=r"pool\.|not a cost report"):
        decode_cost_report(encoded(**changes))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"{}", msgspec.msgpack.encode({"pools": 3})])
def test_malformed_reports_are_rejected(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_cost_report(data)


def test_a_valid_report_round_trips() -> None:
    assert decode_cost_report(encoded()).pools["pool"][""] == SLOW


async def test_nothing_is_reported_while_nothing_is_learned(tmp_path: Path) -> None:
    bus, metrics = InProcessBus(), GatewayMetrics()
    reports = CostReports(bus, lambda: (), metrics.cost_samples)
    began = time.perf_counter()
    for _ in range(1000):
        reports.report()
    assert time.perf_counter() - began < 1.0
