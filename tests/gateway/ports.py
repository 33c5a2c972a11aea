"""Loopback ports of the tests' servers."""

from __future__ import annotations

import socket

from bench.live.loopback_ports import free_port


def listen() -> socket.socket:
    """Return a socket on a free port that refuses connections until something listens."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Its connections linger when it is closed, and its port has to be taken again at once.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", free_port()))
    listener.listen(128)
    return listener
