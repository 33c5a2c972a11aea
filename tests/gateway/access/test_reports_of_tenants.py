"""Reports of one tenant cannot discredit an engine; reports of several tenants, operators and the gateway can."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq.asyncio

from gateway.access.key_quota import KeyQuotas
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import ApiKeyEntry, encode_snapshot
from gateway.gateway import FEEDBACK_CALLS, SNAPSHOT_TOPIC
from gateway.pools.engines.engine_progress import EngineProgress
from gateway.pools.events.event_salts import ENOUGH
from gateway.pools.pool.health_watch import judge_hits
from gateway.server.http.openai_error import ApiError
from routing.policy.policy_document import Stage
from routing.trials.arms import CANARY, ArmEntry
from tests.gateway.fake_engine import FakePublisher
from tests.gateway.pools.pool.test_live_pool import stored
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served, snapshot
from tests.patience import until

ROUTE = "/api/v1/route"
PROMPT = "shared system prompt of everybody " * 40
POOL: dict[str, Any] = {"key_source": "approximate", "block_bytes": 64}


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url], tmp_path, **POOL) as running:
        yield running


async def _report(gateway: ServedGateway, text: str, verb: str, body: dict[str, int], key: str = OTHER_KEY) -> None:
    _, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "prompt": PROMPT + text, "wait": False}, key=key)
    url = f"/api/v1/requests/{answer['decision_id']}/"
    if verb == "complete":
        await gateway.post(url + "first_token", {}, key=key)
    assert (await gateway.post(url + verb, body, key=key))[0] == 200


async def _judged(gateway: ServedGateway) -> str:
    gateway.gateway.health.ended_hits.take()
    engine = gateway.pool.engines["engine-0"]
    engine.hits._judged_s = float("-inf")
    judge_hits(gateway.pool, time.monotonic())
    return str(engine.index_trust(by_dispatches=True).grade)


@pytest.mark.parametrize(("key", "grade"), [(OTHER_KEY, "degraded"), (KEY, "blind")])
async def test_one_tenants_reports_discredit_no_index_and_an_operators_do(
    gateway: ServedGateway, key: str, grade: str
) -> None:
    await gateway.post("/v1/completions", {"model": MODEL, "prompt": PROMPT, "max_tokens": 2})
    for number in range(30):
        await _report(gateway, str(number), "complete", {"cached_tokens": 0, "prompt_tokens": 7}, key)
    assert await _judged(gateway) == grade


async def _proxied(gateway: ServedGateway, key: str, count: int = 30, **fields: Any) -> None:
    for number in range(count):
        body = {"model": MODEL, "prompt": PROMPT[:320] + str(number), "max_tokens": 2, **fields}
        assert (await gateway.post("/v1/completions", body, key=key))[0] == 200


THIRD_KEY = "hw_test_key_of_tenant_c"


async def _with_a_third_tenant(gateway: ServedGateway, **fields: Any) -> None:
    now = gateway.gateway.snapshot
    assert now is not None
    third = ApiKeyEntry(key_id="kc", sha256=sha256(THIRD_KEY.encode()).hexdigest(), tenant_id="tenant-c", **fields)
    newer = msgspec.structs.replace(now, version=2, published_at=now.published_at + 1, api_keys=(*now.api_keys, third))
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(newer))
    await until(lambda: gateway.gateway.snapshot_version == 2)


@pytest.mark.parametrize(
    ("keys", "grade"), [((OTHER_KEY,), "degraded"), ((OTHER_KEY, THIRD_KEY), "blind"), ((KEY,), "blind")]
)
async def test_one_tenants_requests_discredit_no_index(
    gateway: ServedGateway, engine: ScriptedEngine, keys: tuple[str, ...], grade: str
) -> None:
    await _with_a_third_tenant(gateway)
    await _proxied(gateway, KEY, 6)
    engine.cached_tokens = 0
    for key in keys:
        await _proxied(gateway, key)
    assert await _judged(gateway) == grade


async def test_reports_of_a_pools_only_tenant_are_sufficient_evidence(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    now = gateway.gateway.snapshot
    assert now is not None
    keys = (msgspec.structs.replace(now.api_keys[0], scopes=("manage",)), now.api_keys[1])
    newer = msgspec.structs.replace(now, version=2, published_at=now.published_at + 1, api_keys=keys)
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(newer))
    await until(lambda: not gateway.pool.several_tenants)
    engine.cached_tokens = 0
    await _proxied(gateway, OTHER_KEY)
    assert await _judged(gateway) == "blind"


@pytest.mark.parametrize(
    "fields", [{"prompt_logprobs": 0}, {"echo": True, "logprobs": 1}, {"truncate_prompt_tokens": 9}]
)
async def test_requests_that_bypass_the_cache_are_forwarded_and_judge_no_index(
    gateway: ServedGateway, engine: ScriptedEngine, fields: dict[str, Any]
) -> None:
    engine.cached_tokens = 0
    await _proxied(gateway, KEY, **fields)
    assert all(set(fields) <= set(body) for body in engine.bodies)
    for number in range(30):
        asked = {"model": MODEL, "prompt": PROMPT + str(number), "wait": False, **fields}
        _, answer, _ = await gateway.post(ROUTE, asked)
        await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete", {"cached_tokens": 0})
    assert await _judged(gateway) == "degraded"
    assert not gateway.pool.engines["engine-0"].hits.recent()


async def test_a_caller_can_exclude_a_prompt_from_judging_the_index(gateway: ServedGateway) -> None:
    for number in range(30):
        asked = {"model": MODEL, "prompt": PROMPT + str(number), "wait": False, "comparable": False}
        _, answer, _ = await gateway.post(ROUTE, asked)
        await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete", {"cached_tokens": 0})
    assert await _judged(gateway) == "degraded"


async def test_omitted_salts_are_detected_only_from_requests_that_the_gateway_proxied(
    tmp_path: Path,
) -> None:
    context = zmq.asyncio.Context()
    publisher = FakePublisher(context)
    try:
        async with ScriptedEngine() as engine:
            plain, bus = snapshot([engine.url], block_tokens=2), InProcessBus()
            watched = msgspec.structs.replace(
                plain.engines[0], kv_events_endpoint=publisher.endpoint, kv_replay_endpoint=publisher.replay_endpoint
            )
            bus.publish(SNAPSHOT_TOPIC, encode_snapshot(msgspec.structs.replace(plain, engines=(watched,))))
            async with served([], tmp_path, bus=bus) as gateway:
                await until(lambda: "engine-0" in gateway.pool.engines)
                live = gateway.pool.engines["engine-0"]
                await publisher.publish(stored([1, 2]))
                await until(lambda: live.trust.grade == "exact")
                salted = {"model": MODEL, "cache_salt": "mine"}
                for number in range(2 * ENOUGH):
                    asked = {**salted, "token_ids": [number] * 40, "wait": False}
                    _, answer, _ = await gateway.post(ROUTE, asked, key=OTHER_KEY)
                    for verb in ("first_token", "complete"):
                        await gateway.post(f"/api/v1/requests/{answer['decision_id']}/{verb}", {}, key=OTHER_KEY)
                    short = {**salted, "prompt": [number] * 40, "truncate_prompt_tokens": 1}
                    await gateway.post("/v1/completions", short, key=OTHER_KEY)
                assert not live.salts_seen.missing
                for number in range(ENOUGH):
                    await gateway.post("/v1/completions", {**salted, "prompt": [7, number] * 20}, key=OTHER_KEY)
                assert live.salts_seen.missing
    finally:
        await publisher.close()
        context.destroy(linger=0)


@pytest.mark.parametrize(("key", "failures"), [(OTHER_KEY, 0), (KEY, 12)])
async def test_one_tenants_failures_do_not_affect_an_engine_and_an_operators_do(
    gateway: ServedGateway, key: str, failures: int
) -> None:
    for number in range(12):
        await _report(gateway, str(number), "fail", {}, key)
    assert gateway.pool.progress.engine("engine-0").failures_in_row == failures


def test_failures_of_several_tenants_count_without_the_most_frequent_reporter() -> None:
    engine = EngineProgress()
    for tenant, count in (("a", 3), ("b", 20)):
        for _ in range(count):
            engine.reported(tenant, failed=True)
    assert engine.failures_in_row == 3
    engine.reported("a", failed=False)
    assert engine.failures_in_row == 0
    engine.dispatched("r", 1.0, 0.0)
    engine.dropped("r", failed=True)
    engine.reported("b", failed=False)
    assert engine.failures_in_row == 1
    engine.first_token("s", 0.0)
    assert engine.failures_in_row == 0


@pytest.mark.parametrize(("key", "counted"), [(OTHER_KEY, False), (KEY, True)])
async def test_one_tenants_reports_do_not_move_canary_guardrails(tmp_path: Path, key: str, counted: bool) -> None:
    arm = ArmEntry(arm=CANARY, trial_id="t", share=1.0, policy_version=2, placement=Stage(name="round_robin"))
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, arms=(arm,), **POOL) as gateway:
        await _report(gateway, "x", "fail", {}, key)
        await _report(gateway, "y", "complete", {}, key)
        tallies = gateway.gateway.arm_results._tallies
    assert bool(tallies) == counted


async def test_callers_cannot_report_outcomes_of_proxied_requests(tmp_path: Path) -> None:
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2, "stream": True}
    headers = {"authorization": f"Bearer {OTHER_KEY}"}
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, **POOL) as gateway:
        engine.pause_s = 0.5
        async with gateway.client.post(gateway.url + "/v1/completions", json=body, headers=headers) as response:
            name = response.headers["x-headway-decision"]
            assert gateway.app.recent.get(name).outcome == ""  # type: ignore[union-attr]
            status, answer, _ = await gateway.post(f"/api/v1/requests/{name}/fail", {}, key=OTHER_KEY)
            await response.read()
        assert (status, answer["outcome"]) == (200, "")
        assert gateway.app.recent.get(name).outcome == "completed"  # type: ignore[union-attr]


async def test_failure_reports_of_an_only_tenant_count(gateway: ServedGateway) -> None:
    made = snapshot([gateway.pool.engines["engine-0"].entry.url], **POOL)
    newer = msgspec.structs.replace(made, version=2, published_at=made.published_at + 1, api_keys=made.api_keys[1:])
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(newer))
    await until(lambda: gateway.pool.one_tenant)
    for number in range(3):
        await _report(gateway, str(number), "fail", {})
    assert gateway.pool.progress.engine("engine-0").failures_in_row == 3


class _Counted:
    def inc(self, *values: str, amount: float = 1.0) -> None:
        pass


def test_reports_have_a_separate_rate_limit_derived_from_the_keys() -> None:
    key = ApiKeyEntry(key_id="k", sha256="", tenant_id="t", rate_per_min=2)
    quotas = KeyQuotas(_Counted(), calls="reports", per_request=FEEDBACK_CALLS)
    for _ in range(2 * FEEDBACK_CALLS):
        quotas.spend(key, 0.0)
    with pytest.raises(ApiError, match="8 reports"):
        quotas.spend(key, 0.0)
    quotas.spend(key, 60.0)


async def test_feedback_is_limited_in_proportion_to_the_keys_rate(gateway: ServedGateway) -> None:
    now = gateway.gateway.snapshot
    assert now is not None
    keys = tuple(msgspec.structs.replace(api_key, rate_per_min=1) for api_key in now.api_keys)
    newer = msgspec.structs.replace(now, version=2, published_at=now.published_at + 1, api_keys=keys)
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(newer))
    await until(lambda: gateway.gateway.snapshot_version == 2)
    statuses = [(await gateway.post("/api/v1/requests/x/fail", {}))[0] for _ in range(FEEDBACK_CALLS + 1)]
    assert statuses == [404] * FEEDBACK_CALLS + [429]
