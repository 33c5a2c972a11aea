"""The endpoint picker's gRPC server: ext_proc over TLS, the standard health service, and counters."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from deploy.envoy.certificate import PickerCertificate
from deploy.envoy.exchange import Objectives, PickerContext, PickerExchange
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
SYNC_S = 5.0
"""Seconds to wait for the first list of objectives before the picker reports itself ready."""
LAST_REPORTS_S = 5.0
"""Seconds to wait for unsent reports after the last request has ended."""
_logger = logging.getLogger("headway.picker")


@dataclass(frozen=True, slots=True)
class PickerSettings:
    """Headway's address, how the picker serves, and the endpoints to fall back on until a decision has named one."""

    url: str
    api_key: str
    listen: str = "127.0.0.1:9002"
    engines: tuple[str, ...] = ()
    late_s: float = 1.0
    metrics_port: int = 0
    plaintext: bool = False
    cert_dir: Path | None = None
    """Folder with tls.crt and tls.key; None: a certificate of its own."""
    health_listen: str = ""
    """Further address with the health service alone, without TLS: probes of Kubernetes cannot use TLS."""
    objectives: tuple[str, str] | None = None
    """Namespace and name of the InferencePool whose InferenceObjectives set priorities; None: no objectives."""
    subset_header: bool = False
    """Whether the header x-gateway-destination-endpoint-subset counts if the proxy's metadata names no subset."""


class Picker(ext_proc_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """The ext_proc service. Mutable: what its requests share."""

    def __init__(self, shared: PickerContext) -> None:
        self._shared = shared

    async def Process(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Serve one request."""
        async for reply in PickerExchange(self._shared).process(request_iterator):
            yield reply

    async def aclose(self) -> None:
        """Wait for the last reports, then close the connections to Headway."""
        if self._shared.reports:
            _, late = await asyncio.wait(self._shared.reports, timeout=LAST_REPORTS_S)
            for report in late:
                report.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._shared.client.aclose()

    def metrics(self) -> str:
        """Return the counters as Prometheus text."""
        text = lines("headway_picker_requests_total", "outcome", self._shared.counts) + lines(
            "headway_picker_fail_open_total", "reason", self._shared.client.decisions.fail_opens
        )
        if self._shared.objectives is None:
            return text
        known = int(not self._shared.objectives.problem())
        return f"{text}# TYPE headway_picker_objectives_known gauge\nheadway_picker_objectives_known {known}\n"


@asynccontextmanager
async def served(settings: PickerSettings) -> AsyncIterator[tuple[Picker, int]]:
    """Serve until the block ends; yield the picker and its port. Raises PickerSettingError."""
    client = AsyncHeadway(
        settings.url, settings.api_key, engines=settings.engines, late_s=settings.late_s, door="envoy"
    )
    counts = Counter(decided=0, failed_open=0, rejected=0)
    objectives = _watched(settings.objectives)
    shared = PickerContext(client, counts, objectives=objectives, trusts_subset_header=settings.subset_header)
    picker = Picker(shared)
    checks, server, probed = health.aio.HealthServicer(), grpc.aio.server(options=_limits()), grpc.aio.server()
    ext_proc_grpc.add_ExternalProcessorServicer_to_server(picker, server)
    port = _bound(server, settings)
    for listener in (server, probed):
        health_pb2_grpc.add_HealthServicer_to_server(checks, listener)
    if settings.health_listen:
        probed.add_insecure_port(settings.health_listen)
    await checks.set("liveness", health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    await probed.start()
    checking = asyncio.create_task(_keep_health(shared, settings.url, checks))
    try:
        async with serving(settings.metrics_port, picker.metrics):
            yield picker, port
    finally:
        checking.cancel()
        # wait() instead of await, which would raise the cancellation here.
        await asyncio.wait([checking])
        await server.stop(grace=5.0)
        await probed.stop(grace=None)
        await picker.aclose()
        if objectives is not None:
            await asyncio.to_thread(objectives.close)


def _watched(pool: tuple[str, str] | None) -> Objectives | None:
    """Start to watch the objectives of an InferencePool."""
    if pool is None:
        return None
    # A picker without objectives needs no Kubernetes client, which takes half a second to import.
    from deploy.envoy.objectives import objectives_of

    return objectives_of(*pool)


def _bound(server: Any, settings: PickerSettings) -> int:
    """Open the server's port; return its number."""
    if settings.plaintext:
        return int(server.add_insecure_port(settings.listen))
    certificate = PickerCertificate(settings.cert_dir)
    made = grpc.dynamic_ssl_server_credentials(certificate.current(), certificate.changed)
    return int(server.add_secure_port(settings.listen, made))


def _limits() -> list[tuple[str, int]]:
    return [
        ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_S)),
        ("grpc.max_connection_idle_ms", int(1000 * _IDLE_S)),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
    ]


async def _keep_health(shared: PickerContext, url: str, checks: Any) -> None:
    """Report the picker healthy while Headway is live or a fallback engine is known.

    It becomes healthy for the first time once it knows its objectives, or knows that Kubernetes does not list them.
    """
    problem = None if shared.objectives else ""
    async with httpx.AsyncClient(timeout=CHECK_S) as http:
        while True:
            if shared.objectives:
                problem = await _logged(shared.objectives, problem)
            try:
                ready = (await http.get(f"{url}/live")).status_code == 200
            except httpx.TransportError:
                ready = False
            # A picker that can fail open still serves requests better than none.
            ready = ready or shared.client.decisions.can_fail_open()
            answer = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
            for service in ("", "readiness", EXT_PROC):
                await checks.set(service, answer)
            await asyncio.sleep(CHECK_S)


async def _logged(objectives: Objectives, before: str | None) -> str:
    """Return the problem with the objectives, after the first list; log it if it is new."""
    problem = objectives.problem() if before is not None else await asyncio.to_thread(objectives.problem, SYNC_S)
    if problem and problem != before:
        _logger.error("InferenceObjectives are not known: %s. Those last known count.", problem)
    return problem
