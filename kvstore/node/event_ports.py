"""Limit connections to a node's event ports, which are public. libzmq has no such options."""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import zmq
from zmq.utils.monitor import parse_monitor_message

from kvstore.transfer.unproven import Unproven

MAX_CONNECTIONS = 128
MAX_RECEIVED_BYTES = 8 << 10
"""Limit per connection: libzmq stores its subscriptions and any unterminated message. A gateway sends 200 bytes, and
reconnects after some hundred replays. libzmq stops reading after 1,000 messages, so more might never be received.
"""
_HANDSHAKE_MS = 5000
_MAX_MESSAGE_BYTES = 256
_MAX_EVENTS = 100
"""Maximum connection events per call, so that they do not delay the node's messages."""
_COUNT_EVERY = 10
_READ_BYTES = 1 << 20
_MAX_READS = 64
_TCP_INFO_BYTES = 136
_RECEIVED = slice(128, 136)
"""Position of `tcpi_bytes_received` in Linux's `struct tcp_info`."""

_Peer = tuple[str, int]


class GuardedPort:
    """Closes excess connections to a ZeroMQ socket, and connections that send too much.

    Mutable state: `_peers`, descriptor → peer; `_open`, the same descriptors by age; and the number of calls.
    """

    def __init__(self, publisher: zmq.Socket[bytes]) -> None:
        """Watch `publisher`, which must not be bound yet."""
        self._publisher = publisher
        self._peers: dict[int, _Peer] = {}
        self._open: Unproven[int] = Unproven(MAX_CONNECTIONS, math.inf)
        self._calls = 0
        publisher.handshake_ivl, publisher.maxmsgsize = _HANDSHAKE_MS, _MAX_MESSAGE_BYTES
        self._monitor = publisher.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)

    def guard(self) -> None:
        """Close connections that exceed a limit. Call it a hundred times a second."""
        for _ in range(_MAX_EVENTS):
            if not self._monitor.poll(0):
                break
            event = parse_monitor_message(self._monitor.recv_multipart())
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._enter(event["value"])
            else:
                self._leave(event["value"])
        self._calls += 1
        # A system call per connection, so not at each call.
        if self._calls % _COUNT_EVERY == 0:
            for descriptor, peer in list(self._peers.items()):
                if _with(descriptor, peer, _received) > MAX_RECEIVED_BYTES:
                    self._cut(descriptor)

    def close(self) -> None:
        """Stop watching. Call it before closing the socket."""
        self._publisher.disable_monitor()
        self._monitor.close(linger=0)

    def _enter(self, descriptor: int) -> None:
        with suppress(OSError), socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as connection:
            peer = self._peers[descriptor] = connection.getpeername()[:2]
            displaced = self._open.enter(descriptor, peer[0], 0.0)
            if displaced is not None:
                self._cut(displaced)

    def _leave(self, descriptor: int) -> _Peer | None:
        self._open.leave(descriptor)
        return self._peers.pop(descriptor, None)

    def _cut(self, descriptor: int) -> None:
        _with(descriptor, self._leave(descriptor), _shut_down)


def _with(descriptor: int, peer: _Peer | None, act: Callable[[socket.socket], int]) -> int:
    """Call `act` on libzmq's connection to this peer. Return 0 if the descriptor now belongs to another one."""
    # `fromfd` duplicates the descriptor, so that closing ours leaves libzmq's open.
    with suppress(OSError), socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as connection:
        if connection.getpeername()[:2] == peer:
            return act(connection)
    return 0


def _received(connection: socket.socket) -> int:
    if sys.platform != "linux":
        return 0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return int.from_bytes(info[_RECEIVED], sys.byteorder)


def _shut_down(connection: socket.socket) -> int:
    # Not closed: the descriptor belongs to libzmq, which closes it when it reads the end. Until its receive buffer has
    # room, the kernel refuses what the client sends instead of resetting the connection, so empty the buffer first.
    with suppress(BlockingIOError):
        for _ in range(_MAX_READS):
            if not connection.recv(_READ_BYTES, socket.MSG_DONTWAIT):
                break
    connection.shutdown(socket.SHUT_RDWR)
    return 0
