"""Sockets of one installation: the public port, and Unix sockets in the state directory between its processes."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from pathlib import Path

BUS_SOCKET, WEB_SOCKET = "bus.sock", "web.sock"
_LONGEST = 100
"""Maximum length of a socket path. Systems allow 104 to 108 bytes."""


def socket_path(state_dir: Path, name: str) -> Path:
    """Return the path of a socket, in the state directory or, if that path is too long, in the temporary directory."""
    path = state_dir / name
    if len(os.fsencode(path)) <= _LONGEST:
        return path
    digest = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"headway-{os.getuid()}-{digest}" / name


def make_private(path: Path) -> None:
    """Create the socket's directory with access only for this user. Raises PermissionError if another user owns it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The temporary directory is everyone's: another user may have made ours first.
    if path.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{path.parent} belongs to another user; set HEADWAY_STATE_DIR to a shorter path.")


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
