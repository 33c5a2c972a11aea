"""Requests served by another region: overload, forwarding both ways, failures on the path."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.contracts.request_batch import TOPIC as REQUESTS
from gateway.contracts.request_batch import decode_batch, decode_rows
from gateway.contracts.traffic_row import TrafficRow
from tests.gateway.peers.regions.three_regions import REGIONS, ThreeRegions, three_regions
from tests.patience import PATIENCE_S


@pytest.fixture
async def regions(tmp_path: Path) -> AsyncIterator[ThreeRegions]:
    async with three_regions(tmp_path) as running:
        yield running


async def test_without_load_a_region_serves_its_own_requests(regions: ThreeRegions) -> None:
    for name in REGIONS:
        status, answer, _ = await regions.chat(name, f"hello from {name}")
        assert status == 200, answer
    assert all(engine.bodies for engine in regions.engines.values())


async def test_requests_of_an_overloaded_region_are_served_by_others(regions: ThreeRegions) -> None:
    regions.engines["us"].pause_s = 0.5
    answers = await asyncio.gather(*(regions.chat("us", f"question {number}", stream=True) for number in range(6)))
    assert [status for status, _, _ in answers] == [200] * 6, answers
    assert all("Hel" in text and "[DONE]" in text for _, text, _ in answers)
    assert regions.engines["eu"].bodies or regions.engines["asia"].bodies
    taken_back = any(outcome != "completed" for _, outcome in regions.events.forwards("us"))
    assert taken_back or [regions.events.dispatches(name) for _, _, name in answers] == [1] * 6


async def test_both_regions_record_the_hop(regions: ThreeRegions) -> None:
    regions.engines["us"].pause_s = 1.0
    answers = await asyncio.gather(*(regions.chat("us", f"question {number}") for number in range(2)))
    explained = [await regions.explain("us", decision_id) for _, _, decision_id in answers]
    crossed = next(item for item in explained if item["hop"] is not None)
    assert crossed["hop"]["origin"] == "us"
    assert crossed["hop"]["destination"] in ("eu", "asia")
    assert crossed["hop_reason_words"] == "no local engine had capacity within an acceptable wait"
    assert crossed["outcome"]["state"] == "completed"
    record = regions.gateways[crossed["hop"]["destination"]].app.recent.get(crossed["decision"]["decision_id"])
    assert record is not None
    assert record.hop is not None
    assert (record.hop.origin, record.outcome, record.tenant_id) == ("us", "completed", "tenant-a")
    metrics = await regions.gateways["us"].metrics()
    for (destination, outcome), count in regions.events.forwards("us").items():
        line = f'headway_forwards_total{{outcome="{outcome}",region="{destination}"}} {count}.0'
        assert line in metrics
    assert regions.events.forwards("us")[crossed["hop"]["destination"], "completed"]
    links = regions.gateways["us"].gateway.regions
    assert links is not None
    sums: Counter[tuple[str, str]] = Counter()
    for item in links.traffic.sample().hand_overs:
        assert item.reason == "no_local_room"
        sums[item.region, "requests"] += item.requests
        sums[item.region, "failed"] += item.failed
    outcomes = regions.events.forwards("us")
    assert sum(sums[name, "requests"] for name in ("eu", "asia")) == sum(outcomes.values())
    assert sum(sums[name, "failed"] for name in ("eu", "asia")) == sum(
        number for (_, outcome), number in outcomes.items() if outcome != "completed"
    )


async def test_traffic_is_recorded_once_with_its_region_of_arrival(regions: ThreeRegions) -> None:
    rows: list[TrafficRow] = []
    for bus in regions.buses.values():
        bus.subscribe(REQUESTS, lambda _topic, value: rows.extend(decode_rows(decode_batch(value).traffic)))
    regions.engines["us"].pause_s = 0.5
    answers = await asyncio.gather(*(regions.chat("us", f"question {number}") for number in range(6)))
    assert [status for status, _, _ in answers] == [200] * 6, answers
    served = {name: len(engine.bodies) for name, engine in regions.engines.items()}
    for gateway in regions.gateways.values():
        await gateway.gateway.requests.flush(last=True)
    assert {name: sum(row.pool == name for row in rows) for name in REGIONS} == served
    assert {row.origin for row in rows if row.pool != "us"} == {"us"}
    assert {row.origin for row in rows if row.pool == "us"} <= {""}


async def test_a_forwarded_request_makes_no_second_hop(regions: ThreeRegions) -> None:
    for engine in regions.engines.values():
        engine.pause_s = 0.3
    answers = await asyncio.gather(*(regions.chat(name, f"{name} {n}") for name in REGIONS for n in range(5)))
    assert {status for status, _, _ in answers} == {200}
    assert all(regions.events.dispatches(name) for _, _, name in answers)
    for gateway in regions.gateways.values():
        for record in gateway.app.recent._records.values():
            assert record.hop is None or record.hop.origin != record.hop.destination


async def test_a_client_disconnect_ends_the_work_in_the_other_region(regions: ThreeRegions) -> None:
    regions.engines["us"].stall = True
    regions.engines["eu"].stall = regions.engines["asia"].stall = True
    first = asyncio.create_task(regions.chat("us", "stays"))
    async with asyncio.timeout(PATIENCE_S):
        await regions.engines["us"].received.wait()
        second = asyncio.create_task(regions.chat("us", "goes"))
        others = [regions.engines[name] for name in ("eu", "asia")]
        waits = [asyncio.create_task(other.received.wait()) for other in others]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        reached = next(other for other in others if other.received.is_set())
        second.cancel()
        await reached.disconnected.wait()
    for task in (first, *waits):
        task.cancel()
    await asyncio.gather(first, second, *waits, return_exceptions=True)


async def test_a_region_that_fails_before_the_first_byte_is_replaced(regions: ThreeRegions) -> None:
    regions.engines["us"].pause_s = 1.0
    for name in ("eu", "asia"):
        regions.engines[name].status = 500
    answers = await asyncio.gather(*(regions.chat("us", f"question {number}", stream=True) for number in range(2)))
    assert [status for status, _, _ in answers] == [200, 200], answers


async def test_a_broken_stream_ends_with_an_error_immediately(regions: ThreeRegions) -> None:
    regions.engines["us"].stall = True
    first = asyncio.create_task(regions.chat("us", "stays"))
    async with asyncio.timeout(PATIENCE_S):
        await regions.engines["us"].received.wait()
    for name in ("eu", "asia"):
        regions.engines[name].die_after_chunks = 1
    status, text, _ = await regions.chat("us", "goes", stream=True)
    assert status == 200
    assert "Hel" in text
    assert "broken_stream" in text
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
