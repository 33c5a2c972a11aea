"""Scopes, rate limits and concurrency limits of API keys over HTTP; every slot is eventually freed."""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.base.settings import GatewaySettings
from gateway.contracts.snapshot import ApiKeyEntry, encode_snapshot
from gateway.reports.key_usage import TOPIC, decode_uses
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served
from tests.patience import until

ROUTE = {"model": MODEL, "block_hashes": [1, 2, 3], "wait": False}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


def limit(gateway: ServedGateway, **changes: Any) -> None:
    """Publish the snapshot with the first key changed, as the control plane would."""
    now = gateway.gateway.snapshot
    assert now is not None
    first, *others = now.api_keys
    changed = (msgspec.structs.replace(first, **changes), *others)
    replaced = msgspec.structs.replace(now, version=now.version + 1, published_at=time.time(), api_keys=changed)
    gateway.gateway._take_snapshot(encode_snapshot(replaced))


async def test_each_scope_opens_its_own_paths(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        limit(gateway, scopes=("infer",))
        status, answer, _ = await gateway.post("/api/v1/route", ROUTE)
        assert (status, answer["error"]["type"], answer["error"]["code"]) == (403, "permission_error", "missing_scope")
        assert "route" in answer["error"]["message"]
        for path in ("/api/v1/route/batch", "/api/v1/requests/x/complete"):
            assert (await gateway.post(path, [ROUTE]))[0] == 403
        assert (await gateway.get("/v1/models"))[0] == 200
        assert (await gateway.post("/v1/chat/completions", CHAT))[0] == 200
        limit(gateway, scopes=("route",))
        assert (await gateway.post("/api/v1/route", ROUTE))[0] == 200
        for path in ("/v1/chat/completions", "/v1/completions"):
            assert (await gateway.post(path, CHAT))[0] == 403
        assert (await gateway.get("/v1/models"))[0] == 200
        limit(gateway, scopes=("manage",))
        assert (await gateway.get("/v1/models"))[0] == 403
        limit(gateway, scopes=())
        assert (await gateway.post("/api/v1/route", ROUTE))[0] == 403
        assert 'headway_rejected_input_total{cause="missing_scope"}' in await gateway.metrics()


async def test_the_rate_limit_covers_all_endpoints(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        limit(gateway, rate_per_min=4)
        assert (await gateway.post("/api/v1/route", ROUTE))[0] == 200
        assert (await gateway.post("/v1/chat/completions", CHAT))[0] == 200
        assert (await gateway.post("/api/v1/route/batch", [ROUTE, ROUTE]))[0] == 200
        status, answer, headers = await gateway.post("/api/v1/route", ROUTE)
        assert (status, answer["error"]["code"]) == (429, "key_rate_limit")
        assert 1 <= int(headers["retry-after"]) <= 15
        assert (await gateway.post("/api/v1/route", ROUTE, key="hw_test_key_of_tenant_b"))[0] == 200
        assert 'headway_key_limited_total{reason="rate"} 1.0' in await gateway.metrics()


async def test_a_batch_over_the_rate_limit_is_rejected_whole(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        limit(gateway, rate_per_min=3)
        assert (await gateway.post("/api/v1/route/batch", [ROUTE] * 4))[0] == 429
        assert (await gateway.post("/api/v1/route/batch", [ROUTE] * 3))[0] == 200


async def test_feedback_is_not_rate_limited_and_frees_the_slot(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        limit(gateway, max_in_flight=1, rate_per_min=2)
        _, first, _ = await gateway.post("/api/v1/route", ROUTE)
        status, answer, headers = await gateway.post("/api/v1/route", ROUTE)
        assert (status, answer["error"]["code"], headers["retry-after"]) == (429, "key_in_flight_limit", "1")
        for _ in range(3):
            done = f"/api/v1/requests/{first['decision_id']}/complete"
            assert (await gateway.post(done, {"cached_tokens": 0}))[0] == 200
        assert gateway.gateway.key_quotas.in_flight("ka", time.monotonic()) == 0
        gateway.gateway.key_quotas.check()


async def test_a_rejected_decision_releases_its_slot(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        limit(gateway, max_in_flight=1)
        await engine.stop()
        for pool in gateway.gateway.pools.values():
            for live in pool.engines.values():
                for _ in range(20):
                    live.breaker.record_failure("connect", time.monotonic())
        for _ in range(3):
            assert (await gateway.post("/api/v1/route", ROUTE))[0] == 503
        assert gateway.gateway.key_quotas.in_flight("ka", time.monotonic()) == 0


async def test_concurrent_requests_are_limited_and_a_disconnected_client_frees_its_slot(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        engine.stall = True
        limit(gateway, max_in_flight=2)
        waiting = [asyncio.create_task(gateway.post("/v1/chat/completions", CHAT)) for _ in range(2)]
        quotas = gateway.gateway.key_quotas
        await until(lambda: quotas.in_flight("ka", time.monotonic()) >= 2)
        status, answer, _ = await gateway.post("/v1/chat/completions", CHAT)
        assert (status, answer["error"]["code"]) == (429, "key_in_flight_limit")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: not quotas.in_flight("ka", time.monotonic()))
        quotas.check()


async def test_revoked_and_expired_keys_are_rejected_immediately(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        assert (await gateway.post("/api/v1/route", ROUTE))[0] == 200
        limit(gateway, expires_at=time.time() - 0.001)
        status, answer, _ = await gateway.post("/api/v1/route", ROUTE)
        assert (status, answer["error"]["code"]) == (401, "expired_api_key")
        limit(gateway, sha256=sha256(b"another").hexdigest(), expires_at=None)
        status, answer, _ = await gateway.post("/api/v1/route", ROUTE)
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


async def test_key_uses_are_published_and_rejected_keys_are_not(tmp_path: Path) -> None:
    settings = GatewaySettings(probe_interval_s=0.1, key_usage_interval_s=0.05)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=settings) as gateway:
        received: list[dict[str, float]] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: received.append(decode_uses(value).at))
        begin = time.time()
        await gateway.post("/api/v1/route", ROUTE)
        await gateway.post("/api/v1/route", ROUTE, key="hw_nobody")
        await until(lambda: received)
        assert list(received[0]) == ["ka"]
        assert begin - 1 <= received[0]["ka"] <= time.time() + 1
        assert KEY not in str(received)


def test_entries_of_an_older_snapshot_allow_everything_without_limits() -> None:
    old = msgspec.msgpack.encode({"key_id": "k", "sha256": "0" * 64, "tenant_id": "t"})
    entry = msgspec.msgpack.decode(old, type=ApiKeyEntry)
    assert (entry.scopes, entry.rate_per_min, entry.max_in_flight) == (("infer", "route"), None, None)


@pytest.mark.parametrize("path", ["/api/v1/route", "/v1/chat/completions"])
async def test_a_key_over_its_limit_gets_an_openai_error(tmp_path: Path, path: str) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        limit(gateway, rate_per_min=1)
        body = ROUTE if path == "/api/v1/route" else CHAT
        assert (await gateway.post(path, body))[0] == 200
        status, answer, _ = await gateway.post(path, body)
        assert status == 429
        assert set(answer["error"]) == {"message", "type", "code", "param"}
        assert answer["error"]["type"] == "rate_limit_error"


async def test_no_key_text_appears_in_logs_or_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    canary = "hw_canary_of_a_key_9f31"
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        limit(gateway, rate_per_min=1, scopes=("route",))
        answers = [await gateway.post("/api/v1/route", ROUTE, key=key) for key in (KEY, KEY, canary)]
        answers.append(await gateway.post("/v1/chat/completions", CHAT))
        reported = caplog.text + str(answers) + await gateway.metrics()
    assert [status for status, _, _ in answers] == [200, 429, 401, 403]
    assert KEY not in reported
    assert canary not in reported
