"""Connections to other nodes, kept open between transfers."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable

import msgspec

from kvstore.keys.keyring import Keyring
from kvstore.transfer.connection import Connection, PeerError, large_buffers
from kvstore.transfer.handshake import CONNECTIONS
from kvstore.transfer.tls import FileTls, TlsFiles

_IDLE_S = 15.0
"""Shorter than the servers' own limit, so that pooled connections are rarely already closed."""
_MAX_IDLE = 8


class _Idle(msgspec.Struct, frozen=True):
    connection: Connection
    since: float


class ConnectionPool:
    """Idle connections to nodes. Mutable state: `_idle`, address → connections, and `_closed`, guarded by `_lock`."""

    def __init__(
        self,
        keyring: Keyring | None,
        clock: Callable[[], float],
        tls: TlsFiles | None,
        timeout_s: float,
        name: str = "",
    ) -> None:
        """Set up an empty pool. `name` identifies this client in the nodes' counts."""
        self._keys = keyring.keys(CONNECTIONS) if keyring is not None else None
        self._clock = clock
        self._timeout_s, self._name = timeout_s, name
        self._tls = FileTls(tls) if tls else None
        self._idle: dict[str, list[_Idle]] = {}
        self._closed = False
        self._lock = threading.Lock()

    def take(self, address: str) -> tuple[Connection, bool]:
        """Return a connection, and whether it was already open, in which case the peer can have closed it."""
        with self._lock:
            idle, now = self._idle.pop(address, []), self._clock()
            while idle:
                # The most recently used one, which the peer has least likely closed.
                pooled = idle.pop()
                if now - pooled.since < _IDLE_S:
                    self._idle[address] = idle
                    return pooled.connection, True
                pooled.connection.close()
        return self._open(address), False

    def give(self, address: str, connection: Connection) -> None:
        """Return a connection to the pool after its last response was read completely."""
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if not self._closed and len(idle) < _MAX_IDLE:
                idle.append(_Idle(connection, self._clock()))
                return
        connection.close()

    def close_idle(self) -> None:
        """Close connections idle for so long that their node has closed them or is about to."""
        with self._lock:
            now, old = self._clock(), list[_Idle]()
            for address, kept in list(self._idle.items()):
                old += [item for item in kept if now - item.since >= _IDLE_S]
                self._idle[address] = [item for item in kept if now - item.since < _IDLE_S]
                if not self._idle[address]:
                    del self._idle[address]
        for item in old:
            item.connection.close()

    def close(self) -> None:
        """Close idle connections now, and others when they are returned."""
        with self._lock:
            self._closed = True
            idle = [item.connection for kept in self._idle.values() for item in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _open(self, address: str) -> Connection:
        host, port = split_address(address)
        if self._keys is None:
            raise PeerError(f"cannot reach {address} without the nodes' secret")
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection((host, port), self._timeout_s)
            large_buffers(sock)
            if self._tls is not None:
                sock = self._tls.fresh().client.wrap_socket(sock, server_hostname=host)
            # Python's own timeout would poll before each call; `Connection` sets the kernel's instead.
            sock.settimeout(None)
        except OSError as error:
            if sock is not None:
                sock.close()
            raise PeerError(f"cannot reach {address}: {error}") from error
        connection = Connection(sock, self._timeout_s, self._clock)
        try:
            connection.deadline = self._clock() + self._timeout_s
            connection.greet_node(self._keys, self._name)
            connection.deadline = math.inf
        except PeerError:
            connection.close()
            raise
        return connection


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[host]:port". Raises PeerError on anything else."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise PeerError(f"{address!r} is not an address; use host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
