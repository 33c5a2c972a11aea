"""A canary text in prompts and names appears in no log, metric, explanation or error, on any path."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, KEY, MODEL, ServedGateway, served

CANARY = "CANARY7f3a"
MESSAGES = [{"role": "user", "content": f"{CANARY} " * 20}]
GOOD = {"model": MODEL, "messages": MESSAGES}
ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"))

BODIES: list[tuple[str, Any]] = [
    (CHAT, GOOD),
    (CHAT, {**GOOD, "stream": True}),
    (CHAT, {**GOOD, "model": CANARY}),
    (CHAT, {**GOOD, "max_tokens": CANARY}),
    (CHAT, {**GOOD, CANARY: CANARY, "priority": CANARY}),
    (CHAT, {"model": MODEL, "messages": CANARY}),
    (CHAT, {"model": MODEL, "messages": [CANARY]}),
    (CHAT, json.dumps(GOOD).encode()[:-1]),
    (CHAT, json.dumps(GOOD).encode() + b"x"),
    (CHAT, f'{{"{CANARY}": "\\ud800"}}'.encode()),
    (CHAT, f'{{"a": "{CANARY}\\u0000"}}'.encode()),
    (CHAT, b"\xff" + CANARY.encode()),
    (CHAT, CANARY.encode() + b"[" * 5000),
    ("/v1/completions", {"model": MODEL, "prompt": CANARY * 10}),
    ("/v1/completions", {"model": MODEL, "prompt": [CANARY, 1]}),
    ("/v1/completions", {"model": MODEL, "prompt": {CANARY: 1}}),
    ("/v1/responses", {"model": MODEL, "input": CANARY, "instructions": CANARY}),
    ("/v1/responses", {"model": MODEL, "input": [CANARY]}),
    ("/v1/messages", {"model": MODEL, "messages": MESSAGES, "max_tokens": CANARY}),
    ("/v1/messages", {"model": MODEL, "messages": MESSAGES, "system": CANARY, "max_tokens": 5}),
    ("/v1/embeddings", {"model": MODEL, "input": [CANARY, 1]}),
    ("/rerank", {"model": MODEL, "query": CANARY, "documents": [CANARY]}),
    ("/detokenize", {"model": MODEL, "tokens": CANARY}),
    ("/api/v1/route", {"model": MODEL, "messages": MESSAGES, "session_id": CANARY}),
    ("/api/v1/route", {"model": MODEL, "prompt": CANARY, "wait": CANARY}),
    ("/api/v1/route", {"model": CANARY, "prompt": CANARY}),
    ("/api/v1/route/batch", [{"model": MODEL, "prompt": CANARY}, {"model": CANARY, "prompt": CANARY}]),
    (f"/api/v1/requests/{CANARY}/complete", {"cached_tokens": CANARY}),
    (f"/v1/{CANARY}", {}),
]


async def _send(gateway: ServedGateway, path: str, body: Any, **headers: str) -> tuple[int, str, str]:
    """Return status, body and decision id of the response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"authorization": f"Bearer {KEY}", **headers}
    async with gateway.client.post(gateway.url + path, data=data, headers=sent) as response:
        return response.status, await response.text(), response.headers.get("x-headway-decision", "")


async def _seen(gateway: ServedGateway, ids: list[str]) -> str:
    """Return everything that the gateway reports about its work."""
    explained = [json.dumps((await gateway.get(f"/api/v1/explain/{id_}"))[1]) for id_ in ids if id_]
    return await gateway.metrics() + "".join(explained)


async def test_the_canary_appears_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answers = []
    async with (
        ScriptedEngine() as one,
        ScriptedEngine() as two,
        served([one.url, two.url], tmp_path, policy=ROUND_ROBIN, max_prompt_tokens=2000) as gateway,
    ):
        for path, body in BODIES:
            answers.append(await _send(gateway, path, body, **{"x-request-id": f"{CANARY} -", "x-session-id": CANARY}))
        for fault in ({"status": 500}, {"status": 503}, {"die_before_first_byte": True}, {"die_after_chunks": 1}):
            for engine in (one, two):
                engine.status, engine.die_before_first_byte, engine.die_after_chunks = 200, False, None
                engine.__dict__.update(fault)
            answers.append(await _send(gateway, CHAT, {**GOOD, "stream": True}))
        seen = await _seen(gateway, [decision_id for _, _, decision_id in answers])
    assert {status for status, _, _ in answers} >= {200, 400, 404}
    assert CANARY not in seen
    assert CANARY not in _own_lines(caplog)
    assert not [text for _, text, _ in answers if CANARY in text]


async def test_a_crash_does_not_quote_the_prompt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:

        async def broken(*_: Any, **__: Any) -> None:
            raise RuntimeError(f"cannot place {CANARY}")

        monkeypatch.setattr(gateway.pool, "decide", broken)
        status, text, _ = await _send(gateway, CHAT, GOOD)
    assert status == 500
    assert CANARY not in text + _own_lines(caplog)


def _own_lines(caplog: pytest.LogCaptureFixture) -> str:
    """Return the log without the access lines of the test's engines and server."""
    records = [record for record in caplog.records if record.name not in {"aiohttp.access", "uvicorn.access"}]
    assert records
    return "\n".join(caplog.handler.format(record) for record in records)


async def test_each_log_entry_is_one_json_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        engine.status = 500
        await _send(gateway, CHAT, GOOD)
    lines = [record.getMessage() for record in caplog.records if record.name == "gateway"]
    assert any(json.loads(line)["event"] == "request_failed" for line in lines)
    assert all(line.isprintable() and len(line.splitlines()) == 1 for line in lines)
