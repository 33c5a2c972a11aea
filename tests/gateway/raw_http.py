"""HTTP by hand, for requests that no client library would send."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import uvicorn

from gateway.base.asgi_types import AsgiApp
from gateway.server.http.http_protocol import GuardedHttpProtocol
from tests.gateway.ports import listen


class RawConnection:
    """One TCP connection to a server on loopback."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> RawConnection:
        """Open the connection."""
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the next response with a Content-Length."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return int(lines[0].split()[1]), headers, body

    @property
    def ended(self) -> bool:
        """Return whether the server has ended the connection."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def closed(self) -> bool:
        """Return whether the server closes the connection, after reading any remaining bytes."""
        try:
            return not await self._reader.read(1)
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Reset the connection, as a machine does after a power loss."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close it."""
        self._writer.close()
        await asyncio.wait([asyncio.ensure_future(_quietly_closed(self._writer))])


async def _quietly_closed(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.wait_closed()
    except ConnectionError:
        return


def post(path: str, body: bytes, *headers: str, host: str = "127.0.0.1") -> bytes:
    """Return a POST request with a Content-Length."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@asynccontextmanager
async def served_app(app: AsgiApp) -> AsyncIterator[str]:
    """Serve an ASGI app over the gateway's HTTP protocol during the block; yield its address."""
    listener = listen()
    config = uvicorn.Config(app, http=GuardedHttpProtocol, lifespan="off", log_config=None, timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
