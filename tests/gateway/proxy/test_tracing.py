"""Spans reach an OTLP/HTTP receiver and continue the client's trace; without tracing nothing is imported."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway.app import AppSettings
from gateway.proxy.request_spans import Tracing
from gateway.proxy.tracing import SERVICE, tracing_wanted
from gateway.requests.formats.engine_answer import AnswerFacts
from routing.policy.policy_document import RoutingPolicy, Stage
from tests.gateway.ports import listen
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, served

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET_TEXT = "a prompt that nobody else may read"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": SECRET_TEXT}], "max_tokens": 3}
ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))


class Receiver:
    """Store received spans by their ids."""

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing
        self.bodies: list[bytes] = []
        self.services: set[str] = set()

    async def receive(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    async def spans(self) -> list[Any]:
        """Return all spans in order of their start."""
        # The first span may end a moment after the client has its answer.
        for _ in range(200):
            await asyncio.to_thread(self.tracing.flush)
            if self.bodies:
                break
            await asyncio.sleep(0.01)
        exported = []
        for body in self.bodies:
            for resource_span in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = {
                    attribute.key: attribute.value.string_value for attribute in resource_span.resource.attributes
                }
                self.services.add(resource["service.name"])
                exported += [span for scope in resource_span.scope_spans for span in scope.spans]
        return sorted(exported, key=lambda span: span.start_time_unix_nano)


def attributes_of(span: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in span.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@asynccontextmanager
async def vllm_engine() -> AsyncIterator[ScriptedEngine]:
    """Run an engine that lists its model as vLLM does."""
    async with ScriptedEngine() as engine:
        engine.cards = [{"id": MODEL, "object": "model", "owned_by": "vllm", "root": MODEL, "parent": None}]
        yield engine


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Receiver]:
    listener = listen()
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{listener.getsockname()[1]}"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tracing = tracing_wanted(environment)
    assert tracing is not None
    receiver, app = Receiver(tracing), web.Application()
    app.router.add_post("/v1/traces", receiver.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    yield receiver
    await asyncio.to_thread(tracing.close)
    await runner.cleanup()


async def test_a_request_is_traced_as_its_decision_and_its_attempt(receiver: Receiver, tmp_path: Path) -> None:
    async with (
        vllm_engine() as engine,
        served([engine.url], tmp_path, settings=AppSettings(tracing=receiver.tracing)) as gateway,
    ):
        await gateway.pool.engines["engine-0"].probed.wait()
        headers = {"authorization": f"Bearer {KEY}", "traceparent": TRACEPARENT, "tracestate": "a=b"}
        headers["x-request-id"] = "job-7"
        body = {**BODY, "stream": True}
        engine.answer_id, engine.answer_model, engine.finish_reason = "chatcmpl-7", "tiny-0127", "stop"
        async with gateway.client.post(gateway.url + "/v1/chat/completions", json=body, headers=headers) as response:
            await response.read()
            decision_id = response.headers["x-headway-decision"]
        root, decision, attempt = await receiver.spans()
    assert receiver.services == {SERVICE}
    assert {span.trace_id.hex() for span in (root, decision, attempt)} == {TRACE}
    assert root.parent_span_id.hex() == PARENT
    assert decision.parent_span_id == attempt.parent_span_id == root.span_id
    assert engine.headers[0]["traceparent"] == f"00-{TRACE}-{attempt.span_id.hex()}-01"
    assert engine.headers[0]["tracestate"] == "a=b"
    assert (root.name, decision.name) == ("POST /v1/chat/completions", "decision")
    (named,) = [attribute for attribute in root.attributes if attribute.key == "http.request.header.x-request-id"]
    assert [value.string_value for value in named.value.array_value.values] == ["job-7"]
    root.attributes.remove(named)
    assert_facts(engine, decision_id, root, decision, attempt)
    assert root.start_time_unix_nano <= decision.end_time_unix_nano <= attempt.start_time_unix_nano
    assert attempt.end_time_unix_nano <= root.end_time_unix_nano
    assert not [body for body in receiver.bodies if SECRET_TEXT.encode() in body or KEY.encode() in body]


def assert_facts(engine: ScriptedEngine, decision_id: str, root: Any, decision: Any, attempt: Any) -> None:
    """Check which span has which facts."""
    routing = {
        "headway.decision.id": decision_id,
        "headway.engine.id": "engine-0",
        "headway.placement": "least_cost",
        "headway.reason": "least_cost",
        "headway.key_source": "tokenized",
        "headway.prompt_tokens": len(SECRET_TEXT),
        "headway.hit_tokens": 0,
        "headway.policy.version": 0,
    }
    assert attributes_of(decision) == routing
    assert attributes_of(root) == {
        **routing,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "headway.model": MODEL,
        "headway.pool.id": "pool",
        "headway.queued_s": 0.0,
    }
    assert attempt.kind == Span.SPAN_KIND_CLIENT
    assert attempt.name == f"chat {MODEL}"
    inference = attributes_of(attempt)
    assert 0 <= inference.pop("gen_ai.response.time_to_first_chunk") < 10
    assert inference == {
        "http.request.method": "POST",
        "http.request.resend_count": 0,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.id": "chatcmpl-7",
        "gen_ai.response.model": "tiny-0127",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "gen_ai.usage.output_tokens": 2,
        "headway.engine.id": "engine-0",
        "server.address": "127.0.0.1",
        "server.port": urlsplit(engine.url).port,
    }
    assert [event.name for event in attempt.events] == ["first_token"]


async def test_each_attempt_has_a_span_that_names_its_failure(receiver: Receiver, tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as bad,
        ScriptedEngine() as good,
        served(
            [bad.url, good.url], tmp_path, policy=ROUND_ROBIN, settings=AppSettings(tracing=receiver.tracing)
        ) as gateway,
    ):
        bad.status = 500
        for _ in range(2):
            await gateway.post("/v1/chat/completions", BODY)
        spans = await receiver.spans()
    failed = [span for span in spans if "error.type" in attributes_of(span)]
    assert {
        (attributes_of(span)["error.type"], attributes_of(span)["http.response.status_code"]) for span in failed
    } == {("http_5xx", 500)}
    assert len(failed) == len(bad.headers) >= 1
    again = next(span for span in spans if attributes_of(span).get("http.request.resend_count") == 1)
    assert again.trace_id in {span.trace_id for span in failed}
    assert len({header["traceparent"] for header in bad.headers + good.headers}) == len(failed) + 2


async def test_a_rejected_request_records_the_reason(receiver: Receiver, tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, settings=AppSettings(tracing=receiver.tracing), max_prompt_tokens=3) as gateway,
    ):
        await gateway.post("/v1/chat/completions", BODY)
        (root,) = await receiver.spans()
    assert (attributes_of(root)["http.response.status_code"], attributes_of(root)["error.type"]) == (
        400,
        "context_length_exceeded",
    )


async def test_requests_to_any_engine_continue_the_trace_too(receiver: Receiver, tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, settings=AppSettings(tracing=receiver.tracing)) as gateway,
    ):
        engine.scripts["/detokenize"] = b"{}"
        await gateway.post("/detokenize", {"model": MODEL, "tokens": [1]}, headers={"traceparent": TRACEPARENT})
        (root,) = await receiver.spans()
    assert engine.headers[0]["traceparent"] == f"00-{TRACE}-{root.span_id.hex()}-01"
    assert attributes_of(root)["url.path"] == "/detokenize"
    assert not [name for name in attributes_of(root) if name.startswith("gen_ai.")]


async def test_without_tracing_the_clients_trace_headers_pass_unchanged(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        await gateway.post("/v1/chat/completions", BODY, headers={"traceparent": TRACEPARENT})
    assert engine.headers[0]["traceparent"] == TRACEPARENT


COMPLETED: dict[str, Any] = {
    "id": "c",
    "model": "m",
    "choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}],
}
MESSAGE = {"type": "message", "id": "msg_1", "model": "m", "content": [], "stop_reason": "end_turn"}
STARTED = {"type": "message_start", "message": {**MESSAGE, "stop_reason": None}}
RESPONSE = {"type": "response.completed", "response": {"id": "resp_1", "model": "m", "usage": {}}}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([COMPLETED], ("c", "m", ["stop", "length"])),
        ([MESSAGE], ("msg_1", "m", ["end_turn"])),
        ([STARTED, {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}], ("msg_1", "m", ["max_tokens"])),
        ([RESPONSE], ("resp_1", "m", [])),
        ([{"id": 7, "model": None, "choices": [{"finish_reason": None}, 3]}, [], "x"], ("", "", [])),
        ([{"choices": [{"finish_reason": "stop"}] * 999, "id": "x" * 999}], ("x" * 256, "", ["stop"] * 128)),
    ],
)
def test_facts_are_read_in_the_form_of_each_api(events: list[Any], expected: tuple[str, str, list[str]]) -> None:
    facts = AnswerFacts()
    for event in events:
        facts.read(json.dumps(event).encode())
    assert (facts.response_id, facts.model, facts.finish_reasons) == expected


async def test_an_answer_in_one_piece_has_its_facts_too(receiver: Receiver, tmp_path: Path) -> None:
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, settings=AppSettings(tracing=receiver.tracing)) as gateway,
    ):
        engine.answer_id, engine.finish_reason = "chatcmpl-8", "length"
        await gateway.post("/v1/chat/completions", BODY)
        attempt = (await receiver.spans())[-1]
    inference = attributes_of(attempt)
    assert inference["gen_ai.response.id"] == "chatcmpl-8"
    assert inference["gen_ai.response.finish_reasons"] == ["length"]
    assert inference["gen_ai.provider.name"] == "_OTHER"
    assert "gen_ai.response.time_to_first_chunk" not in inference


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_SDK_DISABLED": "True"}],
)
def test_nothing_is_traced_without_a_configured_receiver(environment: dict[str, str]) -> None:
    assert tracing_wanted(environment) is None


def test_a_gateway_without_tracing_does_not_import_it() -> None:
    # The Redis client searches for the SDK's metrics by itself.
    names = {"opentelemetry.sdk.trace", "opentelemetry.exporter", "gateway.reports.genai_metrics"}
    ask = f"import sys, gateway.__main__; print(sys.modules.keys() & {names})"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
