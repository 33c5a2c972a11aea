"""Callers that never report a request's end do not make its engine appear busy, slow or sick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.api import untracked_requests as unattended
from gateway.api.untracked_requests import REPORTED_S, ReportingKeys, UntrackedRequests
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served

ROUTE = "/api/v1/route"
QUESTION = {"model": MODEL, "block_hashes": [1], "wait": False}
GRACE_S = 0.3


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedGateway]:
    monkeypatch.setattr(unattended, "GRACE_S", GRACE_S)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        yield gateway


async def ended(gateway: ServedGateway, name: str) -> bool:
    """Wait until the request's reservation is gone, up to the test timeout."""
    for _ in range(100):
        if gateway.pool.router.reservations.get(name) is None:
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize("wait", [True, False])
async def test_an_unreported_request_ends_at_its_estimate(gateway: ServedGateway, wait: bool) -> None:
    begin = time.time()
    _, answer, _ = await gateway.post(ROUTE, {**QUESTION, "wait": wait})
    name = answer["decision_id"]
    assert gateway.pool.router.reservations.get(name) is not None
    assert GRACE_S <= answer["expires_at"] - begin < GRACE_S + 30
    assert await ended(gateway, name)
    gateway.pool.router.check()


async def test_an_unreported_request_does_not_judge_its_engine(gateway: ServedGateway) -> None:
    _, answer, _ = await gateway.post(ROUTE, QUESTION)
    progress = gateway.pool.progress.engine(answer["engine"]["id"])
    late = progress.counts(time.monotonic() + 60, 0)
    assert (late.dispatched, late.prefilling, late.slowness_samples) == (0, 0, 0)
    gateway.pool.costs.check()
    assert gateway.pool.progress.work_s > 0


async def test_a_caller_that_reported_one_request_is_expected_to_report_the_next(gateway: ServedGateway) -> None:
    _, first, _ = await gateway.post(ROUTE, QUESTION)
    await gateway.post(f"/api/v1/requests/{first['decision_id']}/complete", {})
    _, answer, _ = await gateway.post(ROUTE, QUESTION)
    assert answer["expires_at"] - time.time() > 60
    await asyncio.sleep(2 * GRACE_S)
    assert gateway.pool.router.reservations.get(answer["decision_id"]) is not None
    progress = gateway.pool.progress.engine(answer["engine"]["id"])
    assert progress.counts(time.monotonic(), 0).dispatched == 1


async def test_a_late_report_is_still_counted(gateway: ServedGateway) -> None:
    _, answer, _ = await gateway.post(ROUTE, QUESTION)
    name = answer["decision_id"]
    assert await ended(gateway, name)
    status, reported, _ = await gateway.post(f"/api/v1/requests/{name}/complete", {"cached_tokens": 0})
    assert (status, reported["outcome"]) == (200, "completed")
    gateway.pool.router.check()
    gateway.pool.costs.check()


def test_a_key_counts_as_reporting_for_a_limited_time() -> None:
    keys = ReportingKeys()
    assert not keys.reports("k", 0.0)
    keys.reported("k", 5.0)
    assert keys.reports("k", 5.0 + REPORTED_S)
    assert not keys.reports("k", 6.0 + REPORTED_S)


async def test_requests_expire_in_the_order_of_their_deadlines() -> None:
    over: list[str] = []
    waiting = UntrackedRequests(over.append)  # type: ignore[arg-type]  # names replace records
    for name, life_s in (("late", 0.2), ("soon", 0.05), ("never", 60.0)):
        waiting.add(name, life_s)  # type: ignore[arg-type]
    await asyncio.sleep(0.4)
    assert (over, len(waiting)) == (["soon", "late"], 1)
