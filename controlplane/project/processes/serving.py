"""Runs gateway, web, jobs, and the bus's server as separate processes, and supervises them.

The gateway owns the public port. Its socket stays open here, so connections wait while a gateway restarts. Web and jobs
run at a lower priority. A process that dies is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError

from controlplane.platform.bus import LOCAL_BUS, URL_FILE, bus_url, close_bus
from controlplane.project.processes.bus_server import NoServerError, new_url, server_child
from controlplane.project.processes.child_process import ChildSpec, python
from controlplane.project.processes.gateway_child import VARIABLE, GatewayChild
from controlplane.project.processes.sockets import BUS_SOCKET, WEB_SOCKET, make_private, socket_path
from controlplane.project.processes.supervisor import Supervisor
from gateway.base import background
from gateway.bus.bus import Bus
from gateway.server.process.shutdown import LAST_STEPS_S, ProcessEnd

logger = logging.getLogger(__name__)

TOPOLOGY_S = 2.0
"""Maximum interval between reads of the topology. A new snapshot triggers a read immediately."""
BUS, GATEWAY, WEB, JOBS = "bus", "gateway", "web", "jobs"
_BACKLOG = 2048
_POLL_S = 0.05
_END_POLL_S = 0.2
"""Interval between two checks for the end. Shorter ones cost more CPU than all else that the supervisor does."""
_ANSWER_S = 2.0
_TRIES = 3
"""Maximum number of early ends. If gateway or web ends this often before the first request, the start has failed."""
_BUS_S = 5.0
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
def local_bus() -> Iterator[list[ChildSpec]]:
    """Pass the URL of this installation's bus server to children and commands during the block.

    Return the server as a child to start; none if Redis is configured. Raises CommandError.
    """
    if settings.REDIS_URL:
        yield []
        return
    path, url_file = socket_path(settings.STATE_DIR, BUS_SOCKET), settings.STATE_DIR / URL_FILE
    url = new_url(path)
    try:
        server = server_child(BUS, url)
        make_private(path)
        # A killed program leaves both.
        path.unlink(missing_ok=True)
        url_file.unlink(missing_ok=True)
        with os.fdopen(os.open(url_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(url)
    except NoServerError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{path} cannot be used for the bus: {error.strerror or error}.") from error
    os.environ[LOCAL_BUS] = url
    try:
        yield [server]
    finally:
        del os.environ[LOCAL_BUS]
        for left in (path, url_file):
            left.unlink(missing_ok=True)


def wait_for_bus() -> None:
    """Wait until this installation's bus server accepts connections, for a few seconds at most.

    A first attempt before that would be logged as the loss of the bus.
    """
    until_s = time.monotonic() + _BUS_S
    while LOCAL_BUS in os.environ and time.monotonic() < until_s:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(socket_path(settings.STATE_DIR, BUS_SOCKET)))
            return
        time.sleep(_POLL_S / 10)


class SupervisedEngines:
    """Follows the topology. Mutable state: the names of the supervised engines."""

    def __init__(self, supervisor: Supervisor, read: Callable[[], Sequence[ChildSpec]]) -> None:
        """Store the parameters.

        `read` returns the wanted children from the database, and is called in a separate thread.
        """
        self._supervisor = supervisor
        self._read = read
        self._mine: set[str] = set()

    async def run(self, bus: Bus, topic: str) -> None:
        """Align processes until cancelled. Values of `topic` trigger an immediate read."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        unsubscribe = bus.subscribe(topic, lambda *_: loop.call_soon_threadsafe(woken.set))
        try:
            while True:
                # Before the read: a snapshot that arrives during it triggers another one.
                woken.clear()
                await self.follow()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TOPOLOGY_S):
                        await woken.wait()
        finally:
            unsubscribe()

    async def follow(self) -> None:
        """Align the processes once. They stay unchanged if the database is unavailable."""
        try:
            specs = await asyncio.to_thread(self._read)
        except DatabaseError as error:
            logger.warning("the topology cannot be read; engines stay as they are", extra={"error": str(error)})
            return
        # Old and new ones until they are aligned: those that left the topology must be ended, too.
        self._mine |= {spec.name for spec in specs}
        await self._supervisor.follow(specs, self._mine.__contains__)
        self._mine = {spec.name for spec in specs}


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
                await asyncio.sleep(_END_POLL_S)
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
    # The bus last: the others send what they have queued.
    await supervisor.stop([child.name for child in supervisor.statuses() if child.name != BUS], patience_s=_AT_ONCE_S)
    await asyncio.to_thread(close_bus)
    await supervisor.stop(patience_s=_AT_ONCE_S)
