"""Two tenants of one simulated engine hit only their own caches, before and after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.pools.engines.test_engine_processes import BLOCK, PROMPT, EngineProcess, wait_for_port
from tests.gateway.served_gateway import KEY, OTHER_KEY, ServedGateway, served
from tests.gateway.served_gateway import snapshot as served_snapshot
from tests.patience import until

pytestmark = pytest.mark.processes
BODY = {"model": "m", "prompt": PROMPT, "max_tokens": 2}
POOL: dict[str, Any] = {"block_tokens": BLOCK, "served_model": "m", "unsalted_tenant": "tenant-a"}


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    running = EngineProcess("engine-0")
    running.start()
    try:
        wait_for_port(running.port)
        yield running
    finally:
        running.end()


def _snapshot(engine: EngineProcess, version: int, *, isolated: bool) -> bytes:
    made = served_snapshot([engine.entry.url], isolated=isolated, **POOL)
    return encode_snapshot(msgspec.structs.replace(made, version=version, engines=(engine.entry,)))


@asynccontextmanager
async def _gateway(engine: EngineProcess, state_dir: Path, *, isolated: bool) -> AsyncIterator[ServedGateway]:
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, _snapshot(engine, 1, isolated=isolated))
    async with served([], state_dir, bus=bus) as gateway:
        await until(lambda: _trust(gateway) == "exact")
        yield gateway


def _trust(gateway: ServedGateway) -> str:
    trust = gateway.pool.engines["engine-0"].index_trust(by_dispatches=gateway.pool.by_dispatches)
    return str(trust.grade)


async def _cached(gateway: ServedGateway, key: str) -> int:
    """Send the prompt as this tenant; return its cached tokens."""
    status, answer, _ = await gateway.post("/v1/completions", BODY, key=key)
    assert status == 200
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


async def _predicted(gateway: ServedGateway, key: str) -> int:
    _, answer, _ = await gateway.post("/api/v1/route", {**BODY, "wait": False}, key=key)
    return int(answer["predicted_hit_tokens"])


async def test_isolated_tenant_hits_only_its_own_blocks_before_and_after_a_restart(
    engine: EngineProcess, tmp_path: Path
) -> None:
    async with _gateway(engine, tmp_path, isolated=True) as gateway:
        assert await _cached(gateway, KEY) == 0
        assert await _cached(gateway, OTHER_KEY) == 0
        assert await _cached(gateway, OTHER_KEY) > 0
        assert await _cached(gateway, KEY) > 0
    async with _gateway(engine, tmp_path, isolated=True) as restarted:
        for key in (KEY, OTHER_KEY):
            assert await _predicted(restarted, key) == await _cached(restarted, key) > 0
        assert _trust(restarted) == "exact"


async def test_enabling_tenant_isolation_keeps_the_cache_of_the_first_tenant(
    engine: EngineProcess, tmp_path: Path
) -> None:
    async with _gateway(engine, tmp_path, isolated=False) as gateway:
        await _cached(gateway, KEY)
        before = await _cached(gateway, KEY)
        gateway.gateway._bus.publish(SNAPSHOT_TOPIC, _snapshot(engine, 2, isolated=True))
        await until(lambda: gateway.pool.entry.isolated)
        assert await _predicted(gateway, KEY) == await _cached(gateway, KEY) == before > 0
        assert await _predicted(gateway, OTHER_KEY) == await _cached(gateway, OTHER_KEY) == 0
