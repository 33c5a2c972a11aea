"""The client's address, passed by the gateway to the process that serves pages."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.asgi_types import AsgiApp, Receive, Scope, Send

HEADER = b"x-headway-client"
"""`address port`. The gateway drops this header from clients' requests. No other process can open the pages' socket; on
a TCP port, where peers have addresses, the header is ignored.
"""


def client_header(scope: Scope) -> tuple[bytes, bytes]:
    """Return the header that carries the client's address."""
    client = scope.get("client") or ("", 0)
    return HEADER, f"{client[0]} {client[1]}".encode("ascii", errors="replace")


class ForwardedClient:
    """Gives the wrapped app a scope as if the client were connected to this process."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] in ("http", "websocket"):
            headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
            if not scope.get("client"):
                scope["client"] = _client(next((value for name, value in headers if name == HEADER), b""))
            scope["headers"] = [field for field in headers if field[0] != HEADER]
        await self._app(scope, receive, send)


def _client(header: bytes) -> tuple[str, int] | None:
    address, _, port = header.decode("ascii", errors="replace").partition(" ")
    return (address, int(port)) if address and port.isdecimal() else None
