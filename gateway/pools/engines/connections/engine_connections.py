"""Keeps idle connections to engines, and opens new ones."""

from __future__ import annotations

import asyncio
import socket
from functools import lru_cache
from time import monotonic
from typing import NamedTuple

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType
from yarl import URL

from gateway.pools.engines.connections.request_connection import RequestConnection
from gateway.pools.engines.engine_tls import engine_tls

ADDRESSES_S = 60.0
"""Seconds for which the addresses of a host name are reused."""
MAX_ADDRESSES = 4096
_HAPPY_EYEBALLS_S = 0.25
"""Seconds after which the next address of a host is tried as well (RFC 8305, §5)."""


class EngineOrigin(NamedTuple):
    """The server of a URL. Requests to one origin share its connections."""

    host: str
    port: int
    is_tls: bool


class EngineUrl(NamedTuple):
    """An engine's URL as its requests need it."""

    origin: EngineOrigin
    host: str
    """Value of the Host header."""
    path: str
    """Prefix of the paths of its APIs."""


@lru_cache(maxsize=4096)
def engine_address(url: str) -> EngineUrl:
    """Return the parts of an engine's URL."""
    parsed = URL(url.rstrip("/"))
    origin = EngineOrigin(parsed.raw_host or "", parsed.port or 0, parsed.scheme == "https")
    return EngineUrl(origin, parsed.host_port_subcomponent or "", parsed.raw_path.rstrip("/"))


class EngineConnections:
    """Connections to all engines, used on one event loop. Mutable: idle and open connections, resolved addresses.

    An idle connection is closed after `keepalive_s`.
    """

    def __init__(self, keepalive_s: float) -> None:
        self.keepalive_s = keepalive_s
        self._idle: dict[EngineOrigin, dict[RequestConnection, float]] = {}
        self._open: dict[RequestConnection, EngineOrigin] = {}
        self._addresses: dict[tuple[str, int], tuple[float, list[AddrInfoType]]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def take(self, origin: EngineOrigin, connect_s: float) -> RequestConnection:
        """Return a connection for one exchange; raise OSError if none can be opened in `connect_s`."""
        return self._take_idle(origin) or await self._connected(origin, connect_s)

    async def give_back(self, origin: EngineOrigin, connection: RequestConnection) -> None:
        """Keep a connection whose exchange is over. Break off any other: the engine can notice it on return."""
        if connection.reusable:
            self._keep(origin, connection)
        else:
            await connection.close()

    async def close(self) -> None:
        """Close all connections, and return when they are closed."""
        if self._sweep is not None:
            self._sweep.cancel()
        connected = [connection for connection in self._open if connection.is_connected]
        await asyncio.gather(*[connection.close() for connection in connected])

    def _take_idle(self, origin: EngineOrigin) -> RequestConnection | None:
        idle, now = self._idle.get(origin), monotonic()
        while idle:
            # The last one used is the last one that the engine closes.
            connection, since_s = idle.popitem()
            if connection.is_open and now - since_s < self.keepalive_s:
                return connection
            connection.abort()
        return None

    def _keep(self, origin: EngineOrigin, connection: RequestConnection) -> None:
        connection.resume()
        self._idle.setdefault(origin, {})[connection] = monotonic()
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self.keepalive_s, self._close_idle)

    def _close_idle(self) -> None:
        now = monotonic()
        for origin, idle in list(self._idle.items()):
            for connection in [item for item, since_s in idle.items() if now - since_s >= self.keepalive_s]:
                del idle[connection]
                connection.abort()
            if not idle:
                del self._idle[origin]
        self._sweep = None
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(self.keepalive_s / 2, self._close_idle)

    async def _connected(self, origin: EngineOrigin, connect_s: float) -> RequestConnection:
        loop, (host, port, is_tls) = asyncio.get_running_loop(), origin
        addresses = await self._resolved(host, port)
        connection = RequestConnection(self._lost)
        # Before it is connected, because it can be lost before this task continues.
        self._open[connection] = origin
        try:
            async with asyncio.timeout(connect_s):
                await loop.create_connection(
                    lambda: connection,
                    sock=await aiohappyeyeballs.start_connection(
                        addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_S, loop=loop
                    ),
                    ssl=engine_tls().context() if is_tls else None,
                    server_hostname=host.removesuffix(".") if is_tls else None,
                )
        except BaseException:
            self._open.pop(connection, None)
            raise
        return connection

    async def _resolved(self, host: str, port: int) -> list[AddrInfoType]:
        try:
            return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)]
        except (socket.gaierror, UnicodeError):
            until_s, addresses = self._addresses.get((host, port), (0.0, []))
        if monotonic() >= until_s:
            try:
                resolved = await asyncio.get_running_loop().getaddrinfo(
                    host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                )
            except UnicodeError:
                raise OSError(f"{host!r} is no host name") from None
            addresses = [*resolved]
            if len(self._addresses) >= MAX_ADDRESSES:
                self._addresses.clear()
            self._addresses[host, port] = monotonic() + ADDRESSES_S, addresses
        # Connections to a name with several addresses are spread over them.
        addresses.append(addresses.pop(0))
        return [*addresses]

    def _lost(self, connection: RequestConnection) -> None:
        origin = self._open.pop(connection, None)
        if origin is not None and origin in self._idle:
            self._idle[origin].pop(connection, None)
