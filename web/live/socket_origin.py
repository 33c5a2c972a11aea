"""Accept websockets only from pages of this site, because browsers send its cookies with requests from any site."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


class SocketApp(Protocol):
    """The ASGI app that handles accepted websockets."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


class SameOrigin:
    """Rejects a websocket unless its Origin equals its own host and port, or is trusted."""

    def __init__(self, app: SocketApp, trusted: Collection[str] = ()) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one websocket."""
        headers = dict(scope["headers"])
        origin, host = (headers.get(name, b"").decode("latin-1").lower() for name in (b"origin", b"host"))
        app = self._app if origin in self._trusted or _is_at(origin, host) else nothing_here
        await app(scope, receive, send)


async def nothing_here(scope: Any, receive: Any, send: Any) -> None:
    """Reject a websocket before it opens; the client sees 403."""
    await receive()
    await send({"type": "websocket.close"})


def _is_at(origin: str, host: str) -> bool:
    """Return whether the origin's host and port match the Host header."""
    try:
        asked, there = urlsplit(origin), urlsplit(f"//{host}")
        default = _PORTS[asked.scheme]
        return bool(there.hostname) and (asked.hostname, asked.port or default) == (
            there.hostname,
            there.port or default,
        )
    except (KeyError, ValueError):
        return False
