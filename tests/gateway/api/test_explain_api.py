"""Explanations of a request's decision and outcome, for its own tenant only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        yield gateway


async def _decided(gateway: ServedGateway, **more: Any) -> str:
    question = {"model": MODEL, "block_hashes": [1, 2, 3, 4], "wait": False, **more}
    status, answer, _ = await gateway.post("/api/v1/route", question)
    assert status == 200
    return str(answer["decision_id"])


async def _report(gateway: ServedGateway, decision_id: str, verb: str, body: Any = None, **more: Any) -> Any:
    return await gateway.post(f"/api/v1/requests/{decision_id}/{verb}", body or {}, **more)


async def test_the_history_of_a_request_is_explained(gateway: ServedGateway) -> None:
    decision_id = await _decided(gateway)
    _, before = await gateway.get(f"/api/v1/explain/{decision_id}")
    await _report(gateway, decision_id, "first_token")
    await _report(gateway, decision_id, "complete", {"cached_tokens": 32, "output_tokens": 9})
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
