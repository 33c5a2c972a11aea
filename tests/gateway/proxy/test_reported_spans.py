"""Spans of decisions whose requests others send: they continue the trace, and end with the reported usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.app import AppSettings
from gateway.proxy import reported_spans
from tests.gateway.proxy.test_tracing import PARENT, TRACE, TRACEPARENT, Receiver, attributes_of, receiver
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served
from tests.patience import until

__all__ = ["receiver"]
ROUTE = "/api/v1/route"
TRACED = {"traceparent": TRACEPARENT, "x-headway-door": "nginx", "x-headway-client-request-id": "job-7"}
QUICK = {"model": MODEL, "block_hashes": [1, 2], "wait": False}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20}], "max_tokens": 3}


async def decided(gateway: ServedGateway, body: Any, **headers: str) -> str:
    status, answer, _ = await gateway.post(ROUTE, body, headers={**TRACED, **headers})
    assert status == 200, answer
    return str(answer["decision_id"])


@pytest.mark.parametrize(
    ("body", "headers", "path"),
    [(QUICK, {}, ROUTE), (CHAT, {"x-original-uri": "/v1/chat/completions?x=1"}, "/v1/chat/completions")],
)
async def test_a_decision_is_traced_to_its_reported_end(
    receiver: Receiver, tmp_path: Path, body: Any, headers: dict[str, str], path: str
) -> None:
    settings = AppSettings(tracing=receiver.tracing)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, settings=settings) as gateway:
        name = await decided(gateway, body, **headers)
        await gateway.report(name, "first_token")
        await gateway.report(name, "complete", {"prompt_tokens": 32, "cached_tokens": 16, "output_tokens": 7})
        root, decision = await receiver.spans()
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, PARENT)
    assert (root.name, decision.name, decision.parent_span_id) == (f"POST {path}", "decision", root.span_id)
    assert [event.name for event in root.events] == ["first_token"]
    attributes = attributes_of(root)
    attributes.pop("http.request.header.x-request-id")
    routing = attributes_of(decision)
    assert routing["headway.engine.id"] == "engine-0"
    assert attributes == {
        **routing,
        "headway.queued_s": 0.0,
        "headway.model": MODEL,
        "gen_ai.provider.name": "_OTHER",
        "http.request.method": "POST",
        "http.route": path,
        "url.path": path,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.usage.input_tokens": 32,
        "gen_ai.usage.cache_read.input_tokens": 16,
        "gen_ai.usage.output_tokens": 7,
        "headway.pool.id": "pool",
        "headway.door": "nginx",
        "headway.decision.id": name,
    }


async def test_a_failure_and_a_rejection_end_the_spans_with_their_codes(receiver: Receiver, tmp_path: Path) -> None:
    settings = AppSettings(tracing=receiver.tracing)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, settings=settings) as gateway:
        await gateway.report(await decided(gateway, QUICK), "fail")
        assert (await gateway.post(ROUTE, {**QUICK, "slo_class": "none"}, headers=TRACED))[0] == 400
        await engine.stop()
        await until(lambda: gateway.app._unready() == "No engine is available.")
        assert (await gateway.post(ROUTE, QUICK, headers=TRACED))[0] == 503
        roots = [span for span in await receiver.spans() if span.name == f"POST {ROUTE}"]
    assert [attributes_of(root)["error.type"] for root in roots] == ["reported_by_caller", "no_engine"]
    assert {root.trace_id.hex() for root in roots} == {TRACE}


async def test_spans_without_a_report_are_limited(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reported_spans, "MAX_OPEN", 2)
    settings = AppSettings(tracing=receiver.tracing)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, settings=settings) as gateway:
        names = [await decided(gateway, {**QUICK, "block_hashes": [number]}) for number in range(3)]
        roots = [span for span in await receiver.spans() if span.name == f"POST {ROUTE}"]
        assert [attributes_of(root)["headway.decision.id"] for root in roots] == names[:1]
