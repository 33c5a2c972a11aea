"""A real master of Mooncake Store on loopback; `make test-mooncake` installs it and sets its path."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.live.loopback_ports import free_ports
from tests.patience import wait_until

PROGRAM = os.environ.get("MOONCAKE_MASTER", "")
SEGMENT_BYTES = 64 << 20


@contextmanager
def mooncake_master() -> Iterator[str]:
    """Yield the address of a running master; skip the test if none is installed."""
    if not PROGRAM:
        pytest.skip("run by make test-mooncake, which installs Mooncake Store")
    port, metrics_port = free_ports(2)
    flags = [f"--rpc_port={port}", "--rpc_address=127.0.0.1", f"--metrics_port={metrics_port}"]
    master = subprocess.Popen([PROGRAM, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(port))
        yield f"127.0.0.1:{port}"
    finally:
        master.kill()
        master.wait()


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
