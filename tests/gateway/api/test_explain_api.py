"""Callers report outcomes exactly once, and explanations of a decision are for its tenant alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.served_gateway import MODEL, OTHER_KEY, ServedGateway, served


async def test_the_history_of_a_request_is_explained(gateway: ServedGateway) -> None:
    decision_id = await gateway.decided()
    _, before = await gateway.get(f"/api/v1/explain/{decision_id}")
    await gateway.report(decision_id, "first_token")
    await gateway.report(decision_id, "complete", {"cached_tokens": 32, "output_tokens": 9})
    status, after = await gateway.get(f"/api/v1/explain/{decision_id}")
    assert status == 200
    assert before["outcome"]["state"] == "running"
    assert before["outcome"]["first_token_after_s"] is None
    outcome = after["outcome"]
    assert (outcome["state"], outcome["cached_tokens"], outcome["output_tokens"]) == ("completed", 32, 9)
    assert 0 <= outcome["first_token_after_s"] <= outcome["finished_after_s"]
    assert outcome["on_time"] is True
    assert after["decision"]["candidates"][0]["engine_id"] == after["decision"]["engine_id"] == "engine-0"
    assert after["engine_name"] == "e0"
    assert after["attempts"] == ["engine-0"]
    assert " " in after["reason_words"]


async def test_a_rejected_request_is_explained(tmp_path: Path) -> None:
    async with served(["http://127.0.0.1:9"], tmp_path) as gateway:
        question = {"model": MODEL, "block_hashes": [1], "wait": False}
        status, _, headers = await gateway.post("/api/v1/route", question)
        assert status == 503
        status, explained = await gateway.get(f"/api/v1/explain/{headers['x-request-id']}")
    assert status == 200
    assert (explained["outcome"]["state"], explained["outcome"]["error"]) == ("rejected", "no_engine")
    assert explained["attempts"] == []


async def test_repeated_reports_are_harmless(gateway: ServedGateway) -> None:
    decision_id = await gateway.decided()
    for verb in ("first_token", "complete", "complete", "fail", "first_token"):
        status, answer, _ = await gateway.report(decision_id, verb, {"cached_tokens": 16})
        assert status == 200
    assert answer["outcome"] == "completed"
    text = await gateway.metrics()
    assert 'headway_requests_total{outcome="completed",pool="pool"} 1.0' in text
    assert 'headway_cached_tokens_total{model_name="tiny",pool="pool"} 16.0' in text
    assert 'headway_prompt_tokens_total{model_name="tiny",pool="pool"} 64.0' in text
    assert 'headway_ttft_seconds_count{model_name="tiny",pool="pool"} 1.0' in text
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
    assert 'headway_cached_tokens_total{model_name="tiny",pool="pool"} 64.0' in await gateway.metrics()


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
