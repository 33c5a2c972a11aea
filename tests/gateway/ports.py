"""Loopback ports of the tests' servers."""

from __future__ import annotations

import socket


def listen() -> socket.socket:
    """Return a socket that listens on a port that the kernel picks: the next test's is another one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Its connections linger when it is closed, and its port has to be taken again at once.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
