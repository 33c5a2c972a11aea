"""Runs one engine under uvicorn. Sockets are bound first, so that a port in use gives a clear error."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from typing_extensions import override

from simulator.engine_server.app import EngineApp
from simulator.engine_server.engine_runtime import EngineRuntime
from simulator.engine_server.event_publisher import EventPortTakenError, EventPublisher
from simulator.engine_server.ranked_app import RankedApp
from simulator.engine_server.settings import EngineSettings

_KEEP_ALIVE_S = 75
"""Keep-alive timeout in seconds; longer than the clients' timeout, so that clients close idle connections first."""
_BACKLOG = 1024


class EngineServer(uvicorn.Server):
    """uvicorn's server, but stopping it ends running responses."""

    def __init__(self, settings: EngineSettings) -> None:
        ranks = [settings.of_rank(rank) for rank in range(settings.ranks)]
        self._publishers = [EventPublisher(item) for item in ranks]
        self._apps = [EngineApp(EngineRuntime(*item)) for item in zip(ranks, self._publishers, strict=True)]
        self.runtime = self._apps[0].runtime
        super().__init__(
            uvicorn.Config(
                self._apps[0] if settings.ranks == 1 else RankedApp(self._apps),
                http="httptools",
                loop="uvloop",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=1,
            )
        )

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, also for replay requests."""
        for publisher in self._publishers:
            publisher.serve_replay(asyncio.get_running_loop())
        await super().startup(sockets)

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End running responses and close all sockets."""
        # First: uvicorn's own shutdown waits for running answers.
        for app in self._apps:
            app.runtime.close()
        await super().shutdown(sockets)
        for app, publisher in zip(self._apps, self._publishers, strict=True):
            app.transfer.close()
            publisher.close(asyncio.get_running_loop())


def bind(settings: EngineSettings) -> socket.socket:
    """Return a bound socket; raise EventPortTakenError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # A restarted engine takes its port although old connections are in TIME_WAIT.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Stream chunks are small and must not wait to be joined.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise EventPortTakenError(
            f"cannot bind {settings.host}:{settings.port}: {error.strerror}; choose another --port"
        ) from error
    return listener
