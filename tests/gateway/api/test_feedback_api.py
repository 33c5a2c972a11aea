"""Callers' reports about requests reach router, counters and traffic exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.served_gateway import OTHER_KEY, ServedGateway


async def test_repeated_reports_are_harmless(gateway: ServedGateway) -> None:
    decision_id = await gateway.decided()
    for verb in ("first_token", "complete", "complete", "fail", "first_token"):
        status, answer, _ = await gateway.report(decision_id, verb, {"cached_tokens": 16})
        assert status == 200
    assert answer["outcome"] == "completed"
    text = await gateway.metrics()
    assert 'headway_requests_total{outcome="completed",pool="pool"} 1.0' in text
    assert 'headway_cached_tokens_total{pool="pool"} 16.0' in text
    assert 'headway_prompt_tokens_total{pool="pool"} 64.0' in text
    assert 'headway_ttft_seconds_count{pool="pool"} 1.0' in text
    assert 'outcome="failed"' not in text
    assert len(gateway.pool.router.reservations) == 0
    assert gateway.pool.traffic.totals("engine-0") == (64, 16)


async def test_a_reported_failure_releases_the_engine(gateway: ServedGateway) -> None:
    decision_id = await gateway.decided()
    status, answer, _ = await gateway.report(decision_id, "fail")
    assert (status, answer["outcome"]) == (200, "failed")
    assert len(gateway.pool.router.reservations) == 0
    _, explained = await gateway.get(f"/api/v1/explain/{decision_id}")
    assert explained["outcome"]["error"] == "reported_by_caller"


async def test_cached_tokens_never_exceed_the_prompt(gateway: ServedGateway) -> None:
    decision_id = await gateway.decided()
    await gateway.report(decision_id, "complete", {"cached_tokens": 10_000})
    assert 'headway_cached_tokens_total{pool="pool"} 64.0' in await gateway.metrics()


@pytest.mark.parametrize("body", [{"cached_tokens": -1}, {"cached_tokens": "many"}, {"output_tokens": 1.5}, [1]])
async def test_an_impossible_report_is_rejected_and_changes_nothing(gateway: ServedGateway, body: Any) -> None:
    decision_id = await gateway.decided()
    assert (await gateway.report(decision_id, "complete", body))[0] == 400
    _, explained = await gateway.get(f"/api/v1/explain/{decision_id}")
    assert explained["outcome"]["state"] == "running"


@pytest.mark.parametrize("path", ["/api/v1/requests/nobody/complete", "/api/v1/requests/nobody/explode"])
async def test_unknown_ids_and_actions_get_404(gateway: ServedGateway, path: str) -> None:
    assert (await gateway.post(path, {}))[0] == 404


async def test_tenants_see_and_change_only_their_own_requests(gateway: ServedGateway) -> None:
    decision_id = await gateway.decided()
    assert (await gateway.report(decision_id, "complete", key=OTHER_KEY))[0] == 404
    assert (await gateway.get(f"/api/v1/explain/{decision_id}", key=OTHER_KEY))[0] == 404
    assert (await gateway.get(f"/api/v1/explain/{decision_id}"))[0] == 200


async def test_a_reported_cancellation_releases_the_engine_without_judging_it(gateway: ServedGateway) -> None:
    decision_id = await gateway.decided()
    status, answer, _ = await gateway.report(decision_id, "cancel")
    assert (status, answer["outcome"]) == (200, "cancelled")
    assert len(gateway.pool.router.reservations) == 0
    assert 'outcome="failed"' not in await gateway.metrics()
