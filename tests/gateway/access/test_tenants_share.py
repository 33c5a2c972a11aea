"""A flood of one tenant barely delays another: unreported requests hold few engines, and tenants share dispatches."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api.untracked_requests import FEW
from gateway.base.settings import GatewaySettings
from gateway.contracts.snapshot import ApiKeyEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served, snapshot
from tests.patience import until

ROUTE = "/api/v1/route"
FLOOD = 300


async def _wait_s(gateway: ServedGateway) -> float:
    body = {"model": MODEL, "token_ids": list(range(2000)), "wait": False}
    _, answer, _ = await gateway.post(ROUTE, body)
    await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete", {})
    return float(answer["wait_s"])


async def _flood(
    gateway: ServedGateway, tokens: int, key: str = OTHER_KEY, requests: int = FLOOD
) -> list[dict[str, Any]]:
    bodies = [
        {"model": MODEL, "token_ids": [n] * tokens, "wait": False, "max_tokens": 100_000}
        for n in range(1, requests + 1)
    ]
    answers = [await gateway.post(ROUTE, body, key=key) for body in bodies]
    assert {status for status, _, _ in answers} == {200}
    return [answer for _, answer, _ in answers]


@pytest.mark.parametrize("tokens", [8000, 200])
async def test_unreported_decisions_barely_delay_another_tenant(tmp_path: Path, tokens: int) -> None:
    async with ScriptedEngine() as a, ScriptedEngine() as b, served([a.url, b.url], tmp_path) as gateway:
        before = await _wait_s(gateway)
        await _flood(gateway, tokens)
        slo_s = gateway.pool.entry.policy.ttft_slo_s
        assert await _wait_s(gateway) - before <= 0.2 * slo_s
        gateway.pool.router.check()
        body = {"model": MODEL, "prompt": "hello " * 20, "max_tokens": 2}
        status, answer, _ = await gateway.post("/v1/completions", body)
    assert status == 200, answer


@pytest.mark.parametrize("tokens", [8000, 200])
async def test_a_tenant_with_three_keys_holds_as_much_as_with_two(tmp_path: Path, tokens: int) -> None:
    """A creator of API keys cannot hold more engines by making one more."""
    keys = [OTHER_KEY, "hw_second_key_of_tenant_b", "hw_third_key_of_tenant_b"]
    async with ScriptedEngine() as a, ScriptedEngine() as b, served([a.url, b.url], tmp_path) as gateway:
        made = snapshot([a.url, b.url])
        more = tuple(
            ApiKeyEntry(key_id=key, sha256=sha256(key.encode()).hexdigest(), tenant_id="tenant-b") for key in keys[1:]
        )
        _publish(gateway, msgspec.structs.replace(made, api_keys=made.api_keys + more))
        await until(lambda: gateway.gateway.api_key(more[-1].sha256) is not None)
        held = []
        for key in keys:
            await _flood(gateway, tokens, key, requests=3 * FEW)
            held.append(len(gateway.pool.router.reservations))
        assert 0 < held[0] < held[1] == held[2] <= 2 * FEW


async def test_an_only_tenant_can_hold_all_engines(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        made = snapshot([engine.url])
        _publish(gateway, msgspec.structs.replace(made, api_keys=made.api_keys[1:]))
        await until(lambda: gateway.pool.one_tenant)
        await _flood(gateway, 200)
        assert len(gateway.pool.router.reservations) == FLOOD


async def test_a_caller_that_reports_is_not_limited_in_reservations(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        first = (await _flood(gateway, 200))[0]
        held = len(gateway.pool.router.reservations)
        await gateway.post(f"/api/v1/requests/{first['decision_id']}/first_token", {}, key=OTHER_KEY)
        await _flood(gateway, 200)
        assert held < 20 < FLOOD <= len(gateway.pool.router.reservations)


async def test_fairness_starts_as_soon_as_there_are_two_tenants(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        made = snapshot([engine.url])
        assert gateway.pool.router.policy.fairness.enabled
        assert not gateway.pool.entry.policy.fairness.enabled
        _publish(gateway, msgspec.structs.replace(made, api_keys=made.api_keys[:1]))
        await until(lambda: not gateway.pool.router.policy.fairness.enabled)
        assert gateway.gateway.api_key(sha256(KEY.encode()).hexdigest()) is not None


async def test_a_flood_of_prefixes_evicts_no_other_tenants_hits(tmp_path: Path) -> None:
    small = GatewaySettings(probe_interval_s=0.1, index_max_bytes=500_000)
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, key_source="approximate", gateway_settings=small) as gateway,
    ):

        async def hits(prompt: int, key: str) -> int:
            hashes = [prompt * 100 + block for block in range(50)]
            _, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "block_hashes": hashes, "wait": False}, key=key)
            await gateway.post(f"/api/v1/requests/{answer['decision_id']}/complete", {}, key=key)
            return int(answer.get("predicted_hit_tokens", 0))

        for prompt in range(10):
            await hits(prompt, KEY)
        before = [await hits(prompt, KEY) for prompt in range(10)]
        for prompt in range(100, 200):
            await hits(prompt, OTHER_KEY)
        assert [await hits(prompt, KEY) for prompt in range(10)] == before
        assert min(before) > 0


def _publish(gateway: ServedGateway, made: Snapshot) -> None:
    newer = msgspec.structs.replace(made, version=2, published_at=time.time())
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(newer))
