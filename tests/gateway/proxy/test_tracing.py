"""Spans reach an OTLP/HTTP receiver and continue the client's trace; without tracing nothing is imported."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.app import AppSettings
from gateway.proxy.request_spans import Tracing
from gateway.proxy.tracing import SERVICE, tracing_wanted
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
        await asyncio.to_thread(self.tracing.flush)
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
    return {
        attribute.key: attribute.value.int_value
        if attribute.value.HasField("int_value")
        else attribute.value.string_value
        for attribute in span.attributes
    }


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
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, settings=AppSettings(tracing=receiver.tracing)) as gateway,
    ):
        headers = {"authorization": f"Bearer {KEY}", "traceparent": TRACEPARENT, "tracestate": "a=b"}
        headers["x-request-id"] = "job-7"
        body = {**BODY, "stream": True}
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
    assert attributes_of(root) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "gen_ai.usage.output_tokens": 2,
        "headway.pool.id": "pool",
        "headway.decision.id": decision_id,
    }
    assert attributes_of(decision)["headway.engine.id"] == "engine-0"
    assert attributes_of(attempt)["server.address"] == "127.0.0.1"
    assert [event.name for event in attempt.events] == ["first_token"]
    assert root.start_time_unix_nano <= decision.end_time_unix_nano <= attempt.start_time_unix_nano
    assert attempt.end_time_unix_nano <= root.end_time_unix_nano
    assert not [body for body in receiver.bodies if SECRET_TEXT.encode() in body or KEY.encode() in body]


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
    assert attributes_of(root)["gen_ai.operation.name"] == "detokenize"


async def test_without_tracing_the_clients_trace_headers_pass_unchanged(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        await gateway.post("/v1/chat/completions", BODY, headers={"traceparent": TRACEPARENT})
    assert engine.headers[0]["traceparent"] == TRACEPARENT


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_SDK_DISABLED": "True"}],
)
def test_nothing_is_traced_without_a_configured_receiver(environment: dict[str, str]) -> None:
    assert tracing_wanted(environment) is None


def test_a_gateway_without_tracing_does_not_import_it() -> None:
    # The Redis client searches for the SDK's metrics by itself.
    names = {"opentelemetry.sdk.trace", "opentelemetry.exporter"}
    ask = f"import sys, gateway.__main__; print(sys.modules.keys() & {names})"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
