"""A client's request id appears in the record, the log and the response, and is never used as an internal id."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.reports.decision_recorder import current_decision
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

NAME = 'Root=1-67891233;"job"/7'
NAMED = {"x-request-id": NAME}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 40}]}


async def test_a_proxied_request_records_the_clients_id_and_the_engine_gets_another(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        _, _, headers = await gateway.post("/v1/chat/completions", CHAT, headers=NAMED)
        decision_id = headers["x-headway-decision"]
        record = gateway.app.recent.get(decision_id)
        assert record is not None
        assert headers["x-request-id"] == current_decision(record).client_request_id == NAME
        assert engine.headers[0]["x-request-id"] == decision_id
        _, _, headers = await gateway.post("/v1/chat/completions", CHAT)
        unnamed = gateway.app.recent.get(headers["x-headway-decision"])
        assert unnamed is not None and unnamed.client_request_id == ""


async def test_a_decision_and_each_batch_entry_record_the_clients_id(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        asked = {"model": MODEL, "token_ids": [1, 2, 3], "wait": False}
        _, one, _ = await gateway.post("/api/v1/route", asked, headers=NAMED)
        _, several, _ = await gateway.post("/api/v1/route/batch", [asked, asked], headers={"x-request-id": "batch"})
        names = [one["decision_id"], *(item["decision_id"] for item in several["decisions"])]
        records = [gateway.app.recent.get(name) for name in names]
        assert [record.client_request_id for record in records if record is not None] == [NAME, "batch", "batch"]


async def test_a_retry_and_a_failure_log_the_clients_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gateway")
    async with ScriptedEngine() as engine, ScriptedEngine() as other:
        engine.die_before_first_byte = other.die_before_first_byte = True
        async with served([engine.url, other.url], tmp_path) as gateway:
            status, _, _ = await gateway.post("/v1/chat/completions", CHAT, headers=NAMED)
    assert status >= 500
    events = {getattr(record, "event", ""): getattr(record, "client_request_id", None) for record in caplog.records}
    assert (events["retried"], events["request_failed"]) == (NAME, NAME)
