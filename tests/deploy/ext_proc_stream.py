"""An endpoint picker, called over gRPC as Envoy does, and a Headway with scripted answers behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from aiohttp import web
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from google.protobuf.json_format import ParseDict
from grpc_health.v1 import health_pb2

from deploy.envoy.picker import PickerSettings, served
from deploy.envoy.replies import ENDPOINT
from tests.deploy.behind import CHAT
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY
from tests.patience import PATIENCE_S

DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED


def settings(url: str, *engines: str, **more: Any) -> PickerSettings:
    """Return settings of a picker without TLS."""
    return PickerSettings(url, KEY, "127.0.0.1:0", engines, late_s=PATIENCE_S, **{"plaintext": True, **more})


@asynccontextmanager
async def picker(chosen: PickerSettings) -> AsyncIterator[Any]:
    """Serve a picker and open a stream as Envoy does for each request; yield the function that opens one."""
    async with served(chosen) as (_, port), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = ext_proc_grpc.ExternalProcessorStub(channel)
        yield lambda: stub.Process(timeout=PATIENCE_S)


def headers(
    subset: Any = None,
    sent: Mapping[str, str] | None = None,
    mode: int = DUPLEX,
    answer_mode: int = DUPLEX,
    **more: Any,
) -> Any:
    """Return the first message: headers, the modes, and the endpoints that Envoy allows."""
    message: dict[str, Any] = {
        "requestHeaders": more,
        "protocolConfig": {"requestBodyMode": mode, "responseBodyMode": answer_mode},
    }
    if subset is not None:
        hint = {"x-gateway-destination-endpoint-subset": subset}
        message["metadataContext"] = {"filterMetadata": {"envoy.lb.subset_hint": hint}}
    made = ParseDict(message, ext_proc.ProcessingRequest())
    for name, value in {":method": "POST", ":path": "/v1/chat/completions", **(sent or {})}.items():
        made.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    return made


def body(data: bytes, *, ends: bool) -> Any:
    """Return a piece of the request's body."""
    return ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=data, end_of_stream=ends))


def answer(data: bytes, *, ends: bool) -> Any:
    """Return a piece of the answer's body."""
    return ext_proc.ProcessingRequest(response_body=ext_proc.HttpBody(body=data, end_of_stream=ends))


def status(code: int, served_by: str = "", attribute: str = "") -> Any:
    """Return the answer's headers, and who served as metadata or as an attribute."""
    message: dict[str, Any] = {"responseHeaders": {"headers": {"headers": [{"key": ":status", "value": str(code)}]}}}
    if served_by:
        message["metadataContext"] = {"filterMetadata": {"envoy.lb": {f"{ENDPOINT}-served": served_by}}}
    if attribute:
        message["attributes"] = {"envoy.filters.http.ext_proc": {"upstream.address": attribute}}
    return ParseDict(message, ext_proc.ProcessingRequest())


async def ask(
    opened: Any, request: Any = CHAT, subset: Any = None, sent: Mapping[str, str] | None = None
) -> tuple[Any, Any]:
    """Send one request and return its stream and the first message; retry a busy gateway's rejections."""
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            stream = opened()
            await stream.write(headers(subset, sent))
            await stream.write(body(data[:20], ends=False))
            await stream.write(body(data[20:], ends=True))
            first = await stream.read()
            if b"gateway_late" not in first.immediate_response.body:
                return stream, first
            await asyncio.sleep(1.0)


def set_headers(mutation: Any) -> dict[str, str]:
    """Return the headers that a mutation sets."""
    return {item.header.key: item.header.raw_value.decode() for item in mutation.set_headers}


def endpoint_of(message: Any) -> list[str]:
    """Return the endpoints in a message's header, which equal those in its metadata."""
    part = message.WhichOneof("response")
    named = set_headers(getattr(message, part).response.header_mutation)[ENDPOINT]
    assert message.dynamic_metadata["envoy.lb"][ENDPOINT] == named
    return named.split(",")


def streamed(message: Any) -> Any:
    """Return the piece of a body in a message."""
    return getattr(message, message.WhichOneof("response")).response.body_mutation.streamed_response


def addresses(engines: list[ScriptedEngine]) -> list[str]:
    """Return the `ip:port` of engines."""
    return [engine.url.removeprefix("http://") for engine in engines]


async def checked(checks: Any, service: str) -> Any:
    """Return the health of a service, or None if it is not set yet."""
    try:
        return (await checks.Check(health_pb2.HealthCheckRequest(service=service))).status
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND
        return None


@dataclass
class ScriptedHeadway:
    """Answers `/api/v1/route` as scripted. Mutable: the script, and what was asked and reported."""

    url: str = ""
    engines: list[str] = field(default_factory=lambda: ["http://10.1.0.1:8000"])
    """Engines of the next decisions; the last one stays."""
    rejection: tuple[int, str, dict[str, str]] | None = None
    """Status, code, and headers of a rejection."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the decision's body."""
    asked: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    """Headers, with names in lower case, and body of each call."""
    reports: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Verb and body of each report."""

    async def route(self, request: web.Request) -> web.Response:
        """Serve a call for a decision."""
        self.asked.append(({name.lower(): value for name, value in request.headers.items()}, await request.json()))
        if self.rejection is not None:
            code, name, more = self.rejection
            return web.json_response({"error": {"code": name}}, status=code, headers=more)
        engine = self.engines.pop(0) if len(self.engines) > 1 else self.engines[0]
        made = {"decision_id": f"decision-{len(self.asked)}", "engine": {"url": engine}, "body": self.fields}
        return web.json_response(made)

    async def report(self, request: web.Request) -> web.Response:
        """Receive a report."""
        self.reports.append((request.match_info["verb"], await request.json()))
        return web.json_response({})


@asynccontextmanager
async def scripted_headway() -> AsyncIterator[ScriptedHeadway]:
    """Serve a Headway with scripted answers."""
    made, app = ScriptedHeadway(), web.Application(client_max_size=64 << 20)
    app.router.add_post("/api/v1/route", made.route)
    app.router.add_post("/api/v1/requests/{id}/{verb}", made.report)

    async def live(_: web.Request) -> web.Response:
        return web.Response()

    app.router.add_get("/live", live)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()
