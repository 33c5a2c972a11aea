"""Runs the whole program in this process: the HTTP server, embedded jobs, and child processes."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import uvicorn

from controlplane.child_process import ChildSpec
from controlplane.supervisor import Supervisor
from gateway import background
from gateway.settled_heap import settle_heap

logger = logging.getLogger(__name__)

_LOOK_S = 0.02
_GRACEFUL_S = 1
"""Streams that are still open when the program ends get this long."""
_JOBS_S = 2.5
"""Jobs that do not end within this time are left to the end of the process; their leases run out."""


class PortTakenError(RuntimeError):
    """Another program listens where we should."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What to run."""

    listener: socket.socket
    supervisor: Supervisor
    children: Sequence[ChildSpec]
    embed_jobs: bool
    follow_topology: Callable[[], Awaitable[None]]
    """Keeps engine processes as the topology says until it is cancelled."""
    on_ready: Callable[[], None]
    """Called once the first request can be answered."""


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket, so that a taken port is known before anything else starts; raises PortTakenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortTakenError(
            f"Port {port} on {host} cannot be used ({error.strerror}). "
            "Stop the program that listens there, or choose another with --port."
        ) from error
    return listener


async def serve(serving: Serving) -> bool:
    """Serve until SIGINT or SIGTERM, then end everything that was started; False when the server failed.

    Run it in the main thread: its children live as long as the thread that starts them.
    """
    # uvicorn acts on signals and raises them again at its end; these handlers keep the process alive for the rest.
    asked_to_stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, asked_to_stop.set)
    server = uvicorn.Server(_config())
    serving_task = asyncio.create_task(server.serve(sockets=[serving.listener]))
    jobs = following = None
    try:
        if await _started(server, serving_task):
            settle_heap()
            serving.on_ready()
            serving.supervisor.start(serving.children)
            following = background.start("engine processes", serving.follow_topology)
            if serving.embed_jobs:
                jobs = await asyncio.to_thread(_start_jobs)
            await serving_task
    finally:
        server.should_exit = True
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await _stop(serving.supervisor, jobs, serving_task)
    return server.started or asked_to_stop.is_set()


def _config() -> uvicorn.Config:
    from gateway.http_protocol import KEEP_ALIVE_S, GuardedHttpProtocol

    return uvicorn.Config(
        "controlplane.asgi:application",
        http=GuardedHttpProtocol,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACEFUL_S,
    )


async def _started(server: uvicorn.Server, serving_task: asyncio.Task[None]) -> bool:
    while not server.started and not serving_task.done():  # noqa: ASYNC110 - uvicorn offers only a flag
        await asyncio.sleep(_LOOK_S)
    return server.started


def _start_jobs() -> Callable[[], None]:
    """Import and start Celery off the loop, which already answers requests; returns what stops it."""
    from controlplane.celery import app
    from controlplane.embedded_celery import EmbeddedCelery

    embedded = EmbeddedCelery(app)
    embedded.start()
    return embedded.stop


async def _stop(supervisor: Supervisor, stop_jobs: Callable[[], None] | None, serving_task: asyncio.Task[None]) -> None:
    ending = [supervisor.stop(), serving_task]
    if stop_jobs is not None:
        ending.append(_in_daemon_thread(stop_jobs))
    results = await asyncio.gather(*ending, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            logger.error("the server failed", exc_info=result)


async def _in_daemon_thread(work: Callable[[], None]) -> None:
    """Wait for `work` for _JOBS_S at most; a thread of to_thread would hold up the exit if a job hung."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        work()
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="stop-jobs", daemon=True).start()
    async with asyncio.timeout(_JOBS_S):
        await done.wait()
