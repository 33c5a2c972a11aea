"""GenAI metrics of OpenTelemetry: their values at an OTLP receiver, and when they are wanted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from gateway.app import AppSettings
from gateway.proxy.tracing import genai_metrics_wanted
from tests.gateway.ports import listen
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

METRICS_ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
OF_MODEL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "_OTHER",
    "gen_ai.request.model": MODEL,
    "headway.pool.id": "pool",
}


def points(bodies: list[bytes]) -> dict[str, list[tuple[dict[str, str], int, float]]]:
    """Return (attributes, count, sum) of each metric's points in the last export."""
    (exported,) = ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics
    return {
        metric.name: [
            ({item.key: item.value.string_value for item in point.attributes}, point.count, point.sum)
            for point in metric.histogram.data_points
        ]
        for scope in exported.scope_metrics
        for metric in scope.metrics
    }


async def test_both_ways_through_a_gateway_are_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bodies, listener, app = list[bytes](), listen(), web.Application()

    async def receive(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.Response(content_type="application/x-protobuf")

    app.router.add_post("/v1/metrics", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    monkeypatch.setenv(METRICS_ENDPOINT, f"http://127.0.0.1:{listener.getsockname()[1]}/v1/metrics")
    genai = genai_metrics_wanted({METRICS_ENDPOINT: "x"})
    assert genai is not None
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, settings=AppSettings(listeners=(genai,))) as gateway,
    ):
        await gateway.stream()
        await gateway.report(decision_id := await gateway.decided(), "first_token")
        await gateway.report(decision_id, "complete", {"prompt_tokens": 64, "output_tokens": 9})
        await gateway.report(await gateway.decided(), "fail")
        engine.scripts["/v1/embeddings"] = b'{"object":"list","data":[],"usage":{"prompt_tokens":5}}'
        await gateway.post("/v1/embeddings", {"model": MODEL, "input": "hello"})
        await asyncio.to_thread(genai.flush)
    exported: dict[str, Any] = points(bodies)
    await asyncio.to_thread(genai.close)
    await runner.cleanup()
    assert set(exported) == {
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
        "gen_ai.client.token.usage",
    }
    embeddings = {**OF_MODEL, "gen_ai.operation.name": "embeddings"}
    failed = {**OF_MODEL, "error.type": "reported_by_caller"}
    assert [(attributes, count) for attributes, count, _ in exported["gen_ai.server.request.duration"]] == [
        (OF_MODEL, 2), (failed, 1), (embeddings, 1),
    ]  # fmt: skip
    assert [point[:2] for point in exported["gen_ai.server.time_to_first_token"]] == [(OF_MODEL, 2)]
    assert [point[:2] for point in exported["gen_ai.server.time_per_output_token"]] == [(OF_MODEL, 2)]
    assert exported["gen_ai.client.token.usage"] == [
        ({**OF_MODEL, "gen_ai.token.type": "input"}, 2, 100 + 64),
        ({**OF_MODEL, "gen_ai.token.type": "output"}, 2, 2 + 9),
        ({**embeddings, "gen_ai.token.type": "input"}, 1, 5),
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "x"},
        {"OTEL_METRICS_EXPORTER": "otlp"},
        {"OTEL_METRICS_EXPORTER": "none", METRICS_ENDPOINT: "x"},
        {METRICS_ENDPOINT: "x", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_recorded_unless_it_is_asked_for(environment: dict[str, str]) -> None:
    assert genai_metrics_wanted(environment) is None


def test_the_general_endpoint_and_the_exporters_name_are_enough() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "otlp"}
    genai = genai_metrics_wanted(environment)
    assert genai is not None
    genai.close()
