"""A pool without engines that starts some for its requests: they wait, the scaler is woken, and they are served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.contracts.unserved_requests import SCALING, TOPIC, WAKE_JOBS, decode_unserved
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import BODY, CHAT, MODEL, served, snapshot


async def test_a_request_without_any_engine_wakes_the_scaler_and_waits_for_the_first_one(tmp_path: Path) -> None:
    bus, woken, reports = InProcessBus(), list[bytes](), list[bytes]()
    bus.subscribe(WAKE_JOBS, lambda _topic, value: woken.append(value))
    bus.subscribe(TOPIC, lambda _topic, value: reports.append(value))
    async with ScriptedEngine() as engine:
        empty = snapshot([engine.url], start_s=20.0)
        asleep = replace(empty, engines=(replace(empty.engines[0], desired_state="asleep"),))
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(asleep))
        async with served([], tmp_path, bus=bus) as gateway:
            assert (await gateway.get("/ready"))[0] == 200
            request = asyncio.create_task(gateway.post(CHAT, BODY))
            while not woken:
                await asyncio.sleep(0.01)
            report = decode_unserved(reports[0])
            assert (report.pool_id, report.requests, woken[0]) == ("pool", 1, SCALING)
            # A caller that does not wait learns how long the start is expected to take.
            question = {"model": MODEL, "block_hashes": [1], "wait": False}
            status, answer, headers = await gateway.post("/api/v1/route", question)
            assert (status, answer["error"]["code"]) == (503, "no_engine")
            assert 10 < int(headers["retry-after"]) <= 20
            sample = gateway.pool.engines["engine-0"].entry
            assert sample.desired_state == "asleep"
            assert not request.done()
            bus.publish(SNAPSHOT_TOPIC, encode_snapshot(replace(empty, version=2)))
            status, _, _ = await request
            assert status == 200
            assert gateway.pool.router.cold.expected_s == pytest.approx(20.0 * 0.7, abs=3.0)
    assert len(woken) <= 3, "reports are at least a second apart"


async def test_a_pool_that_starts_none_is_not_ready_and_wakes_nothing(tmp_path: Path) -> None:
    bus, woken = InProcessBus(), list[bytes]()
    bus.subscribe(WAKE_JOBS, lambda _topic, value: woken.append(value))
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot([])))
    async with served([], tmp_path, bus=bus) as gateway:
        assert (await gateway.get("/ready"))[0] == 503
        question = {"model": MODEL, "block_hashes": [1], "wait": False}
        status, _, headers = await gateway.post("/api/v1/route", question)
        assert (status, headers["retry-after"]) == (503, "1")
    assert woken == []
