"""The socket of the public port, bound before other processes start."""

from __future__ import annotations

import socket


class PortTakenError(RuntimeError):
    """Another program listens on the public port."""


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket, so that a port conflict is detected before other processes start.

    Raises PortTakenError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # A restart must not wait for the connections of its predecessor in TIME_WAIT.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortTakenError(
            f"Port {port} on {host} cannot be used ({error.strerror}). "
            "Stop the program that listens there, or choose another with --port."
        ) from error
    return listener
