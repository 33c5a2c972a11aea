"""The HTTP session to engines, with bounds on what an engine can send before its answer begins."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from typing_extensions import override

from gateway.pools.engines.engine_tls import engine_tls

MAX_INTERIM = 16
"""Maximum interim answers (1xx) before an answer. Engines send none, because requests do not ask for them."""
_SWITCHING = 101
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Keepalive seconds and counts. An answer can take many minutes without a byte, and network devices drop idle
connections.
"""


def engine_session(*, keepalive_s: float, connect_s: float | None = None, limit: int = 0) -> aiohttp.ClientSession:
    """Return a session without cookies, environment proxies or decompression. `limit` 0: unlimited connections."""
    return aiohttp.ClientSession(
        connector=_EngineConnector(limit=limit, ttl_dns_cache=60, keepalive_timeout=keepalive_s),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
    )


def detect_lost_peer(transport: asyncio.BaseTransport) -> None:
    """Let the kernel close a connection whose peer has vanished, even if nothing is sent on it."""
    connected: socket.socket | None = transport.get_extra_info("socket")
    if connected is not None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            # macOS lacks some of these options.
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _EngineConnector(aiohttp.TCPConnector):
    """Opens connections that count interim answers and use the engines' TLS settings."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        connection: type[ResponseHandler] = _EngineConnection
        # aiohttp has no setting for the class of its connections.
        self._factory = partial(connection, loop=asyncio.get_running_loop())

    @override
    def _get_ssl_context(self, req: aiohttp.ClientRequest) -> ssl.SSLContext | None:
        return engine_tls().context() if req.is_ssl() else None


class _EngineConnection(ResponseHandler):
    """Detects a lost peer by keepalive. Drops interim answers, and closes a connection that sends too many.

    Mutable: the number of interim answers before an answer.
    """

    _interim = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        detect_lost_peer(transport)

    @override
    def feed_data(self, data: Any, size: int = 0) -> None:
        if self._interim > MAX_INTERIM:
            return
        code = data[0].code
        # 101 is final: no other answer to the request follows it.
        if not 100 <= code < 200 or code == _SWITCHING:
            self._interim = 0
            super().feed_data(data, size)
            return
        self._interim += 1
        if self._interim > MAX_INTERIM and self.transport is not None:
            self.transport.abort()
            self.set_exception(aiohttp.ClientPayloadError(f"more than {MAX_INTERIM} interim answers"))
