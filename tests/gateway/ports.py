"""Free loopback ports in the range set aside for the tests of the gateway's request side."""

from __future__ import annotations

import socket

FIRST, LAST = 18300, 18389


def listen() -> socket.socket:
    """Return a socket that listens on the first free port of the range."""
    for port in range(FIRST, LAST):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
        except OSError:
            listener.close()
            continue
        return listener
    raise RuntimeError(f"no free port between {FIRST} and {LAST}")
