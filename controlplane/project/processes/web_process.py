"""The web process: serves pages, the management API, and websockets on a Unix socket, only for the gateway."""

from __future__ import annotations

import socket
from pathlib import Path

import uvicorn

from controlplane.platform.environment import state_directory
from controlplane.project.processes.child_start import LOWER_PRIORITY, begin
from controlplane.project.processes.sockets import WEB_SOCKET, make_private, socket_path
from gateway.server.process.draining_server import CUT_OFF_S

_IDLE_S = 75
"""Idle timeout of connections, longer than the gateway's."""


def main() -> None:
    """Serve until SIGTERM."""
    begin(nice=LOWER_PRIORITY)
    listener = _listener(socket_path(state_directory(), WEB_SOCKET))
    config = uvicorn.Config(
        "controlplane.project.asgi:application",
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=CUT_OFF_S,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _listener(path: Path) -> socket.socket:
    """Return a socket that replaces the socket of a killed process. Connections fail until it listens."""
    make_private(path)
    # A killed process leaves its socket, and bind fails where the path exists.
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    return listener


if __name__ == "__main__":
    main()
