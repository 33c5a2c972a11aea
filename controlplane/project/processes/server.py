"""Runs the whole program in this process: the HTTP server, embedded jobs, and child processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import uvicorn

from controlplane.project.processes.child_process import ChildSpec
from controlplane.project.processes.supervisor import Supervisor
from gateway.base import background
from gateway.process.draining_server import CUT_OFF_S, DrainingServer
from gateway.process.garbage_collection import settle_heap
from gateway.process.shutdown import ProcessEnd

logger = logging.getLogger(__name__)

_LOOK_S = 0.02
_JOBS_S = 2.5
"""Jobs that do not end within this time are left to the end of the process; their leases run out."""
_STEP_S = 4.0
"""Longer than children, jobs and server need when all is well; what takes longer is named, and the process ends."""


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


async def serve(serving: Serving, end: ProcessEnd) -> bool:
    """Serve until `end` is asked for, then end everything that was started; False when the server failed.

    Run it in the main thread: its children live as long as the thread that starts them.
    """
    from controlplane.project.asgi import drain

    server = DrainingServer(_config(), drain, end)
    serving_task = asyncio.create_task(server.serve(sockets=[serving.listener]))
    jobs = following = None
    try:
        if await _started(server, serving_task, end):
            settle_heap()
            serving.on_ready()
            serving.supervisor.start(serving.children)
            following = background.start("engine processes", serving.follow_topology)
            if serving.embed_jobs:
                jobs = await asyncio.to_thread(_start_jobs, partial(_jobs_ended, end))
            await _drained(server, serving_task)
    finally:
        server.should_exit = True
        asked = end.asked
        end.ask("the server stopped unexpectedly", drains=False, status=1)
        steps: dict[str, Awaitable[object]] = {"the server": serving_task}
        steps["child processes"] = _stop_children(serving.supervisor, following)
        if jobs is not None:
            steps["jobs"] = _in_daemon_thread(jobs)
        late = await end_steps(steps, _STEP_S)
        if late:
            end.at_once(f"{' and '.join(late)} did not end within {_STEP_S:g} s", 1)
    return server.started or asked


def _config() -> uvicorn.Config:
    from gateway.http.http_protocol import KEEP_ALIVE_S, GuardedHttpProtocol

    return uvicorn.Config(
        "controlplane.project.asgi:application",
        http=GuardedHttpProtocol,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CUT_OFF_S,
    )


async def _started(server: uvicorn.Server, serving_task: asyncio.Task[None], end: ProcessEnd) -> bool:
    while not (server.started or serving_task.done() or end.asked):  # noqa: ASYNC110 - uvicorn offers only a flag
        await asyncio.sleep(_LOOK_S)
    return server.started


async def _drained(server: DrainingServer, serving_task: asyncio.Task[None]) -> None:
    """Return when nothing under way needs engines or jobs any more, or the server failed."""
    drained = asyncio.create_task(server.drained.wait())
    await asyncio.wait((drained, serving_task), return_when=asyncio.FIRST_COMPLETED)
    drained.cancel()


def _start_jobs(on_end: Callable[[str], None]) -> Callable[[], None]:
    """Import and start Celery off the loop, which already answers requests; returns what stops it."""
    from controlplane.project.celery import app
    from controlplane.project.processes.embedded_celery import EmbeddedCelery

    embedded = EmbeddedCelery(app, on_end=on_end)
    embedded.start()
    return embedded.stop


def _jobs_ended(end: ProcessEnd, part: str) -> None:
    """A program without jobs would serve on what it knows and judge no engine: its process manager starts it anew."""
    end.ask(f"the thread of {part} stopped unexpectedly", status=1)


async def end_steps(steps: Mapping[str, Awaitable[object]], limit_s: float) -> list[str]:
    """Do all steps of the shutdown side by side, and return the names of those that are not done within the limit."""
    names = {asyncio.ensure_future(step): name for name, step in steps.items()}
    done, late = await asyncio.wait(names, timeout=limit_s)
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s failed", names[task], exc_info=task.exception())
    return [name for task, name in names.items() if task in late]


async def _stop_children(supervisor: Supervisor, following: asyncio.Task[None] | None) -> None:
    if following is not None:
        # One that is about to start engines must be over before the last are ended.
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    await supervisor.stop()


async def _in_daemon_thread(work: Callable[[], None]) -> None:
    """Wait for `work` for _JOBS_S at most; a thread of to_thread would hold up the exit if a job hung."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        work()
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="stop-jobs", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_JOBS_S):
            await done.wait()
