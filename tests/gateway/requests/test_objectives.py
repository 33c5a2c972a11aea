"""A request's objectives come from the request, its class, its key's class, or the pool, at both endpoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.contracts.snapshot import ApiKeyEntry, PoolEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.requests.caller_facts import CallerFacts, facts_of_headers, slo_class
from gateway.requests.gateway_request import GatewayRequest, gateway_request
from gateway.requests.prompt_keys import KeyedPrompt
from gateway.server.http.json_body import BadBodyError
from gateway.server.http.openai_error import ApiError
from routing.policy.admission_document import AdmissionDocument, SloClass
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, MODEL, ServedGateway, served

ROUTE = "/api/v1/route"
CLASSES = {"chat": SloClass(ttft_slo_s=1.0, tpot_slo_s=0.05, priority=-3), "batch": SloClass(deadline_s=0.3)}
POLICY = RoutingPolicy(
    slo_classes=CLASSES, ttft_slo_s=5.0, tpot_slo_s=0.2, prefill_window_tokens=1, lookahead_s=0.0, retry_budget=0.5
)
BODY = {"model": MODEL, "block_hashes": [1, 2]}


def objectives(policy: RoutingPolicy, key_class: str = "", **facts: Any) -> GatewayRequest:
    pool = PoolEntry(pool_id="p", name="p", region="here", served_model=MODEL, policy=policy)
    caller = ApiKeyEntry(key_id="k", sha256="", tenant_id="t", slo_class=key_class)
    return gateway_request(pool, KeyedPrompt((), 1, "none"), "r", caller, 10.0, CallerFacts(**facts))


def test_without_a_class_the_pools_objectives_apply() -> None:
    result = objectives(POLICY)
    assert (result.ttft_slo_s, result.tpot_slo_s, result.priority, result.slo_class) == (5.0, 0.2, 0, "")
    assert result.give_up_s == float("inf")


def test_a_class_overrides_only_the_objectives_that_it_sets() -> None:
    result = objectives(POLICY, slo_class="batch")
    assert (result.ttft_slo_s, result.give_up_s, result.slo_class) == (5.0, 10.3, "batch")
    result = objectives(POLICY, slo_class="chat")
    assert (result.ttft_slo_s, result.tpot_slo_s, result.priority) == (1.0, 0.05, -3)


def test_the_requests_own_objectives_override_its_class() -> None:
    result = objectives(POLICY, slo_class="chat", ttft_slo_s=2.5, tpot_slo_s=0.4, priority=7)
    assert (result.ttft_slo_s, result.tpot_slo_s, result.priority) == (2.5, 0.4, 7)


def test_the_class_of_the_key_applies_if_the_request_names_none() -> None:
    assert objectives(POLICY, key_class="chat").slo_class == "chat"
    assert objectives(POLICY, key_class="chat", slo_class="batch").slo_class == "batch"
    assert objectives(POLICY, key_class="of another pool").slo_class == ""


def test_an_objective_of_llm_d_is_a_class_where_the_pool_has_it() -> None:
    assert objectives(POLICY, objective="chat", key_class="batch").slo_class == "chat"
    assert objectives(POLICY, objective="chat", slo_class="batch").slo_class == "batch"
    assert objectives(POLICY, objective="Sheddable/v1", key_class="batch").slo_class == "batch"


def test_an_unknown_class_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(ApiError, match="batch, chat") as error:
        objectives(POLICY, slo_class="gold")
    assert (error.value.status, error.value.code, error.value.param) == (400, "unknown_slo_class", "slo_class")
    with pytest.raises(ApiError, match="has none"):
        objectives(RoutingPolicy(), slo_class="gold")


def test_common_slo_headers_are_read_and_ours_take_precedence() -> None:
    for name in (b"x-headway-ttft-slo-ms", b"x-llm-d-slo-ttft-ms", b"x-sgl-ttft-slo-ms"):
        assert facts_of_headers({name: b"1500"}).ttft_slo_s == 1.5
    assert facts_of_headers({b"x-sgl-ttft-slo-ms": b"9", b"x-headway-ttft-slo-ms": b"20"}).ttft_slo_s == 0.02
    assert facts_of_headers({b"x-llm-d-slo-tpot-ms": b"40"}).tpot_slo_s == 0.04
    assert facts_of_headers({}).ttft_slo_s is None
    assert slo_class({b"x-headway-slo-class": b"chat"}) == "chat"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"0",
        b"-1",
        b"1.5",
        b"abc",
        b"3600001",
        b"9" * 30,
        "²".encode(),
        b"0" * 11 + b"1" + b"9" * 9,
        b"0" * 11 + b"1" * 5000,
    ],
)
def test_objectives_that_are_not_milliseconds_are_rejected(value: bytes) -> None:
    with pytest.raises(BadBodyError):
        facts_of_headers({b"x-sgl-ttft-slo-ms": value})


@pytest.mark.parametrize("value", [b"", b"Chat", b"a" * 33, b"a b", b"\xff", b"chat\n"])
def test_a_malformed_class_is_rejected(value: bytes) -> None:
    with pytest.raises(BadBodyError):
        slo_class({b"x-headway-slo-class": value})


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=POLICY) as gateway:
        yield gateway


async def test_both_endpoints_accept_the_class(gateway: ServedGateway) -> None:
    status, answer, _ = await gateway.post(ROUTE, {**BODY, "slo_class": "chat"})
    assert (status, answer["ttft_slo_s"]) == (200, 1.0)
    reservation = gateway.pool.router.reservations.get(answer["decision_id"])
    assert (reservation.request.tpot_slo_s, reservation.request.priority) == (0.05, -3)
    await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete")
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    status, _, headers = await gateway.post(CHAT, chat, headers={"x-headway-slo-class": "chat"})
    assert status == 200
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    assert explained["ttft_slo_s"] == 1.0


async def test_an_unknown_class_is_400_at_both_endpoints(gateway: ServedGateway) -> None:
    status, answer, _ = await gateway.post(ROUTE, {**BODY, "slo_class": "gold", "wait": False})
    assert (status, answer["error"]["code"]) == (400, "unknown_slo_class")
    assert "batch, chat" in answer["error"]["message"]
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    status, answer, _ = await gateway.post(CHAT, chat, headers={"x-headway-slo-class": "gold"})
    assert (status, answer["error"]["code"]) == (400, "unknown_slo_class")
    status, answer, _ = await gateway.post(ROUTE, {**BODY, "slo_class": "Gold!"})
    assert (status, answer["error"]["param"]) == (400, "slo_class")


async def test_a_key_provides_its_default_class(gateway: ServedGateway) -> None:
    before = gateway.gateway.snapshot
    assert before is not None
    keys = tuple(msgspec.structs.replace(key, slo_class="chat") for key in before.api_keys)
    changed = msgspec.structs.replace(before, version=2, published_at=time.time(), api_keys=keys)
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(changed))
    await asyncio.sleep(0.05)
    _, answer, _ = await gateway.post(ROUTE, {**BODY, "wait": False})
    assert answer["ttft_slo_s"] == 1.0
    _, answer, _ = await gateway.post(ROUTE, {**BODY, "wait": False, "ttft_slo_s": 9.0})
    assert answer["ttft_slo_s"] == 9.0


async def test_the_deadline_of_a_class_ends_the_wait(gateway: ServedGateway) -> None:
    await gateway.post(ROUTE, {"model": MODEL, "block_hashes": list(range(4000)), "wait": False})
    began = time.monotonic()
    status, answer, headers = await gateway.post(ROUTE, {**BODY, "slo_class": "batch"})
    assert (status, answer["error"]["code"]) == (429, "deadline_passed")
    assert time.monotonic() - began > 0.25
    assert int(headers["retry-after"]) >= 1


async def test_retries_follow_the_policy(gateway: ServedGateway) -> None:
    budget = gateway.pool.retry_budget
    for _ in range(20):
        budget.enter()
    assert sum(budget.take() for _ in range(20)) == 10


@pytest.mark.parametrize(
    ("admission", "first", "second", "code"),
    [
        ({"mode": "early"}, 40, 200, "prefill_overload"),
        ({"reject_infeasible": True}, 300, 40, "infeasible"),
    ],
)
async def test_rejections_carry_429_the_reason_and_retry_after(
    admission: dict[str, Any], first: int, second: int, code: str, tmp_path: Path
) -> None:
    # 16 tokens a block at 2 ms each: 40 blocks take 1.3 s, 200 take 6.4 s.
    policy = RoutingPolicy(
        prefill_cost=PrefillCostDocument(base_s=0, per_token_s=2e-3, per_token_squared_s=0, per_hit_token_s=0),
        decode_cost=DecodeCostDocument(),
        admission=AdmissionDocument(**admission),
        prefill_window_tokens=1,
        lookahead_s=0.0,
    )
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=policy) as gateway:
        await gateway.post(ROUTE, {"model": MODEL, "block_hashes": list(range(first)), "ttft_slo_s": 60})
        status, answer, headers = await gateway.post(
            ROUTE, {"model": MODEL, "block_hashes": list(range(1000, 1000 + second))}
        )
        assert (status, answer["error"]["code"], answer["error"]["type"]) == (429, code, "rate_limit_error")
        assert 1 <= int(headers["retry-after"]) <= 10
        assert f'headway_rejections_total{{code="{code}",pool="pool"}} 1.0' in await gateway.metrics()
        gateway.pool.router.check()
