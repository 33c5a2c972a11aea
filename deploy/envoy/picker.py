"""The endpoint picker's gRPC server: ext_proc, the standard health service, and counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from deploy.envoy.exchange import PickerExchange
from deploy.metrics_server import lines, serving
from headway_client.clients import AsyncHeadway, httpx

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
CHECK_S = 1.0
MAX_CONNECTIONS = 256
"""Connection limit. Envoy opens one connection per worker thread, and gRPC rejects those beyond the limit.

The limits below end idle connections and handshakes sooner than gRPC's own defaults.
"""
HANDSHAKE_S = 5.0
_IDLE_S = 300.0
_MAX_STREAMS = 1024
"""Streams per connection. Each stream can buffer a body of exchange.MAX_BODY bytes."""
LAST_REPORTS_S = 5.0
"""Seconds to wait for unsent reports after the last request has ended."""


@dataclass(frozen=True, slots=True)
class PickerSettings:
    """Headway's address, and the endpoints to fall back on until a decision has named one."""

    url: str
    api_key: str
    listen: str = "127.0.0.1:9002"
    engines: tuple[str, ...] = ()
    late_s: float = 1.0
    metrics_port: int = 0


class Picker(ext_proc_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """The ext_proc service. Mutable: the client with its known engines, the counters, and the running report tasks."""

    def __init__(self, client: AsyncHeadway) -> None:
        self._client = client
        self._counts: Counter[str] = Counter(decided=0, failed_open=0, rejected=0)
        self._reports: set[asyncio.Task[None]] = set()

    async def Process(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Serve one request."""
        async for reply in PickerExchange(self._client, self._counts, self._reports).process(request_iterator):
            yield reply

    async def aclose(self) -> None:
        """Wait for the last reports, then close the connections to Headway."""
        if self._reports:
            _, late = await asyncio.wait(self._reports, timeout=LAST_REPORTS_S)
            for report in late:
                report.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.aclose()

    def metrics(self) -> str:
        """Return the counters as Prometheus text."""
        return lines("headway_picker_requests_total", "outcome", self._counts) + lines(
            "headway_picker_fail_open_total", "reason", self._client.decisions.fail_opens
        )


@asynccontextmanager
async def served(settings: PickerSettings) -> AsyncIterator[tuple[Picker, int]]:
    """Serve until the block ends; yield the picker and its port."""
    client = AsyncHeadway(
        settings.url, settings.api_key, engines=settings.engines, late_s=settings.late_s, door="envoy"
    )
    picker, checks, server = Picker(client), health.aio.HealthServicer(), grpc.aio.server(options=_limits())
    ext_proc_grpc.add_ExternalProcessorServicer_to_server(picker, server)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    port = server.add_insecure_port(settings.listen)
    await checks.set("liveness", health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    checking = asyncio.create_task(_keep_health(client, settings.url, checks))
    try:
        async with serving(settings.metrics_port, picker.metrics):
            yield picker, port
    finally:
        checking.cancel()
        # wait() instead of await, which would raise the cancellation here.
        await asyncio.wait([checking])
        await server.stop(grace=5.0)
        await picker.aclose()


def _limits() -> list[tuple[str, int]]:
    return [
        ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_S)),
        ("grpc.max_connection_idle_ms", int(1000 * _IDLE_S)),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
    ]


async def _keep_health(client: AsyncHeadway, url: str, checks: Any) -> None:
    """Report the picker healthy while Headway is live or a fallback engine is known."""
    async with httpx.AsyncClient(timeout=CHECK_S) as http:
        while True:
            try:
                ready = (await http.get(f"{url}/live")).status_code == 200
            except httpx.TransportError:
                ready = False
            # A picker that can fail open still serves requests better than none.
            ready = ready or client.decisions.can_fail_open()
            answer = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
            for service in ("", "readiness", EXT_PROC):
                await checks.set(service, answer)
            await asyncio.sleep(CHECK_S)
