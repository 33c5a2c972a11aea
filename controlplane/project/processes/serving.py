"""Runs gateway, web, and jobs as separate processes, supervises them, and runs the local bus.

The gateway owns the public port. Its socket stays open here, so connections wait while a gateway restarts. Web and jobs
run at a lower priority. If one of the three dies, it is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from django.conf import settings
from django.core.management.base import CommandError

from controlplane.platform.bus import LOCAL_BUS, bus_url
from controlplane.project.processes.child_process import ChildSpec, python
from controlplane.project.processes.gateway_child import VARIABLE, GatewayChild
from controlplane.project.processes.local_sockets import BUS_SOCKET, WEB_SOCKET, make_private, socket_path
from controlplane.project.processes.supervisor import Supervisor
from gateway.base import background
from gateway.bus.local_hub import LocalHub, hub_url
from gateway.server.process.shutdown import LAST_STEPS_S, ProcessEnd

GATEWAY, WEB, JOBS = "gateway", "web", "jobs"
_BACKLOG = 2048
_POLL_S = 0.05
_ANSWER_S = 2.0
_TRIES = 3
"""Maximum number of early ends. If gateway or web ends this often before the first request, the start has failed."""
_AT_ONCE_S = 2.0
"""Time limit for a gateway without requests to end. The other processes get the same time, one after another."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Children and callbacks of one installation."""

    listener: socket.socket
    supervisor: Supervisor
    children: Sequence[ChildSpec]
    """The demo's children, which start after gateway, web, and jobs."""
    with_jobs: bool
    follow_topology: Callable[[], Awaitable[None]]
    """Coroutine that aligns engine processes with the topology until it is cancelled."""
    on_ready: Callable[[], None]
    """Called when gateway and web respond."""
    on_failure: Callable[[], None]
    """Called if gateway or web cannot start, before the other processes are stopped."""
    kv_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables with the secrets that the demo's node managers share with the gateway; empty without node managers."""


@contextmanager
def local_bus() -> Iterator[None]:
    """Run the bus of this installation's processes during the block, unless Redis is configured.

    Raises CommandError.
    """
    if settings.REDIS_URL:
        yield
        return
    hub = LocalHub(path := socket_path(settings.STATE_DIR, BUS_SOCKET))
    try:
        make_private(path)
        hub.start()
    except OSError as error:
        raise CommandError(f"{path} cannot be used for the bus: {error.strerror or error}.") from error
    os.environ[LOCAL_BUS] = hub_url(path)
    try:
        yield
    finally:
        del os.environ[LOCAL_BUS]
        hub.stop()


async def serve(serving: Serving, end: ProcessEnd) -> bool:
    """Serve until `end` is requested, then end all children in order. Return False if they could not start.

    Run it in the main thread, because its children end with the thread that starts them.
    """
    supervisor, following = serving.supervisor, None
    serving.listener.listen(_BACKLOG)
    supervisor.start(_children(serving))
    ready = False
    try:
        ready = await _ready(serving, end)
        if ready:
            serving.on_ready()
            supervisor.start(serving.children)
            following = background.start("engine processes", serving.follow_topology)
            while not end.asked:  # noqa: ASYNC110 - signals and threads set a flag
                await asyncio.sleep(_POLL_S)
        elif not end.asked:
            serving.on_failure()
    finally:
        asked = end.asked
        end.ask("gateway or web did not start", drains=False, status=1)
        await _end(supervisor, following, end)
        serving.listener.close()
        with contextlib.suppress(OSError):
            _web_socket().unlink()
    return ready or asked


def _children(serving: Serving) -> list[ChildSpec]:
    listener = serving.listener.fileno()
    gateway = ChildSpec(
        GATEWAY,
        _argv("gateway_process"),
        {VARIABLE: _gateway_settings(listener), **serving.kv_environment},
        pass_fds=(listener,),
        standby=True,
    )
    others = [WEB, JOBS] if serving.with_jobs else [WEB]
    return [gateway, *(ChildSpec(name, _argv(f"{name}_process")) for name in others)]


def _argv(module: str) -> tuple[str, ...]:
    return (*python(f"controlplane.project.processes.{module}"), str(os.getpid()))


def _gateway_settings(listener: int) -> str:
    child = GatewayChild(
        state_dir=str(settings.STATE_DIR),
        fleet_secret=settings.FLEET_SECRET.decode(),
        fleet_secret_also=settings.FLEET_SECRET_ALSO.decode(),
        bus_url=bus_url(),
        pages_socket=str(_web_socket()),
        listener=listener,
        scrape_token=settings.SCRAPE_TOKEN,
        engine_bearer=settings.ENGINE_API_KEY,
        decisions_per_s=settings.DECISIONS_PER_S,
        recording=settings.RECORDING_BYTES > 0,
        drain_s=settings.DRAIN_S,
        probe_timeout_s=settings.PROBE_TIMEOUT_S,
        hang_limit_s=settings.HANG_LIMIT_S,
        answer_limit_s=settings.ANSWER_LIMIT_S,
        stream_comment_s=settings.STREAM_COMMENT_S,
        allowed_hosts=tuple(settings.ALLOWED_HOSTS),
        body_limit=settings.MAX_BODY_BYTES,
        proxy_body_limit=settings.PROXY_BODY_BYTES,
        client_idle_s=settings.CLIENT_IDLE_S,
        cors_origins=settings.CORS_ORIGINS,
        long_bodies=settings.LONG_BODIES,
        log_level=settings.LOG_LEVEL,
    )
    return msgspec.json.encode(child).decode()


def _web_socket() -> Path:
    return socket_path(settings.STATE_DIR, WEB_SOCKET)


async def _ready(serving: Serving, end: ProcessEnd) -> bool:
    """Return True when gateway and web respond, or False if one of them cannot start or the end was requested."""
    while not end.asked:
        if any(child.starts > _TRIES for child in serving.supervisor.statuses() if child.name != JOBS):
            return False
        if await _answers(serving):
            return True
        await asyncio.sleep(_POLL_S)
    return False


async def _answers(serving: Serving) -> bool:
    """Return whether web listens and the gateway responds, regardless of the response."""
    host, port = serving.listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    try:
        async with asyncio.timeout(_ANSWER_S):
            _, web = await asyncio.open_unix_connection(str(_web_socket()))
            web.close()
            reader, gateway = await asyncio.open_connection(host, port)
            try:
                gateway.write(b"GET /live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                return (await reader.read(9)).startswith(b"HTTP/")
            finally:
                gateway.close()
    except (OSError, TimeoutError):
        return False


async def _end(supervisor: Supervisor, following: asyncio.Task[None] | None, end: ProcessEnd) -> None:
    """End the gateway first, because its last requests may need engines and web.

    Then end all other children together.
    """
    sign, patience_s = signal.SIGINT, _AT_ONCE_S
    if end.drain_s:
        sign, patience_s = signal.SIGTERM, end.drain_s + LAST_STEPS_S
    await supervisor.stop([GATEWAY], sign=sign, patience_s=patience_s)
    end.drained()
    if following is not None:
        # A round that is about to start engines must end before the last ones are ended.
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    await supervisor.stop(patience_s=_AT_ONCE_S)
