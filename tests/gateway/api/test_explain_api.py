"""Explanations of a request's decision and outcome, for its own tenant only."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.served_gateway import MODEL, ServedGateway, served


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
