"""What one tenant reports judges no engine; what several say, the gateway sees or an operator tells does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.access.key_quota import KeyQuotas
from gateway.contracts.snapshot import ApiKeyEntry, encode_snapshot
from gateway.engines.engine_progress import EngineProgress
from gateway.gateway import FEEDBACK_CALLS, SNAPSHOT_TOPIC
from gateway.http.openai_error import ApiError
from gateway.pool.health_watch import judge_hits
from routing.policy.policy_document import Stage
from routing.trials.arms import CANARY, ArmEntry
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served, snapshot
from tests.patience import until

ROUTE = "/api/v1/route"
PROMPT = "shared system prompt of everybody " * 40
POOL: dict[str, Any] = {"key_source": "approximate", "block_bytes": 64}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, **POOL) as running:
        yield running


async def _told(gateway: ServedGateway, text: str, verb: str, body: dict[str, int], key: str = OTHER_KEY) -> None:
    _, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "prompt": PROMPT + text, "wait": False}, key=key)
    place = f"/api/v1/requests/{answer['decision_id']}/"
    if verb == "complete":
        await gateway.post(place + "first_token", {}, key=key)
    assert (await gateway.post(place + verb, body, key=key))[0] == 200


async def _judged(gateway: ServedGateway) -> str:
    await gateway.gateway.requests.flush()
    engine = gateway.pool.engines["engine-0"]
    engine.hits._judged_s = float("-inf")
    judge_hits(gateway.pool, time.monotonic())
    return str(engine.index_trust(by_dispatches=True).grade)


@pytest.mark.parametrize(("key", "grade"), [(OTHER_KEY, "degraded"), (KEY, "blind")])
async def test_one_tenants_reports_blind_no_engine_and_an_operators_do(
    gateway: ServedGateway, key: str, grade: str
) -> None:
    await gateway.post("/v1/completions", {"model": MODEL, "prompt": PROMPT, "max_tokens": 2})
    for number in range(30):
        await _told(gateway, str(number), "complete", {"cached_tokens": 0, "prompt_tokens": 7}, key)
    assert await _judged(gateway) == grade


@pytest.mark.parametrize(("key", "failures"), [(OTHER_KEY, 0), (KEY, 12)])
async def test_one_tenants_failures_say_nothing_of_an_engine_and_an_operators_do(
    gateway: ServedGateway, key: str, failures: int
) -> None:
    for number in range(12):
        await _told(gateway, str(number), "fail", {}, key)
    assert gateway.pool.progress.engine("engine-0").failures_in_row == failures


def test_failures_that_several_tenants_report_count_without_the_one_that_reports_most() -> None:
    engine = EngineProgress()
    for tenant, count in (("a", 3), ("b", 20)):
        for _ in range(count):
            engine.told(tenant, failed=True)
    assert engine.failures_in_row == 3
    engine.told("a", failed=False)
    assert engine.failures_in_row == 0
    engine.dispatched("r", 1.0, 0.0)
    engine.dropped("r", failed=True)
    engine.told("b", failed=False)
    assert engine.failures_in_row == 1
    engine.first_token("s", 0.0)
    assert engine.failures_in_row == 0


@pytest.mark.parametrize(("key", "counted"), [(OTHER_KEY, False), (KEY, True)])
async def test_one_tenants_reports_move_no_guard_of_a_canary(tmp_path: Path, key: str, counted: bool) -> None:
    arm = ArmEntry(arm=CANARY, trial_id="t", share=1.0, policy_version=2, placement=Stage(name="round_robin"))
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, arms=(arm,), **POOL) as gateway:
        await _told(gateway, "x", "fail", {}, key)
        await _told(gateway, "y", "complete", {}, key)
        tallies = gateway.gateway.arm_results._tallies
    assert bool(tallies) == counted


async def test_a_caller_has_no_say_in_what_the_gateway_forwards(tmp_path: Path) -> None:
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2, "stream": True}
    headers = {"authorization": f"Bearer {OTHER_KEY}"}
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, **POOL) as gateway:
        engine.pause_s = 0.5
        async with gateway.client.post(gateway.url + "/v1/completions", json=body, headers=headers) as response:
            name = response.headers["x-switchyard-decision"]
            assert gateway.app.recent.get(name).outcome == ""  # type: ignore[union-attr]
            status, told, _ = await gateway.post(f"/api/v1/requests/{name}/fail", {}, key=OTHER_KEY)
            await response.read()
        assert (status, told["outcome"]) == (200, "")
        assert gateway.app.recent.get(name).outcome == "completed"  # type: ignore[union-attr]


async def test_an_only_tenant_is_believed(gateway: ServedGateway) -> None:
    made = snapshot([gateway.pool.engines["engine-0"].entry.url], **POOL)
    newer = msgspec.structs.replace(made, version=2, published_at=made.published_at + 1, api_keys=made.api_keys[1:])
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(newer))
    await until(lambda: gateway.pool.one_tenant)
    for number in range(3):
        await _told(gateway, str(number), "fail", {})
    assert gateway.pool.progress.engine("engine-0").failures_in_row == 3


class _Counted:
    def inc(self, *values: str, amount: float = 1.0) -> None:
        pass


def test_reports_have_a_minute_of_their_own_by_the_keys_requests() -> None:
    key = ApiKeyEntry(key_id="k", sha256="", tenant_id="t", rate_per_min=2)
    quotas = KeyQuotas(_Counted(), calls="reports", per_request=FEEDBACK_CALLS)
    for _ in range(2 * FEEDBACK_CALLS):
        quotas.spend(key, 0.0)
    with pytest.raises(ApiError, match="8 reports"):
        quotas.spend(key, 0.0)
    quotas.spend(key, 60.0)


async def test_feedback_is_limited_by_the_keys_rate(gateway: ServedGateway) -> None:
    now = gateway.gateway.snapshot
    assert now is not None
    keys = tuple(msgspec.structs.replace(each, rate_per_min=1) for each in now.api_keys)
    newer = msgspec.structs.replace(now, version=2, published_at=now.published_at + 1, api_keys=keys)
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(newer))
    await until(lambda: gateway.gateway.snapshot_version == 2)
    statuses = [(await gateway.post("/api/v1/requests/x/fail", {}))[0] for _ in range(FEEDBACK_CALLS + 1)]
    assert statuses == [404] * FEEDBACK_CALLS + [429]
