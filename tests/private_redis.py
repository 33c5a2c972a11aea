"""A private Redis server for a test, on a free loopback port, started and killed by its PID."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_port
from tests.patience import PATIENCE_S


class PrivateRedis:
    """One server without persistence; a kill discards its contents, like a lost machine."""

    def __init__(self, port: int, directory: Path) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self._port = port
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and return once it responds."""
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            ["redis-server", *options, "--dir", str(self._directory)], stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(7) == b"+PONG\r\n":
                        return
            except OSError:
                time.sleep(0.02)
        raise TimeoutError(f"redis-server did not answer within {PATIENCE_S:g} s")

    def kill(self) -> None:
        """Kill the server, which simulates a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the server without closing its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume a frozen server."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def private_redis(directory: Path) -> Iterator[PrivateRedis]:
    """Run a server for the block. Skip if redis-server is not installed, or fail under CI=true."""
    if shutil.which("redis-server") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have redis-server: install it (Debian: apt-get install redis-server)")
        pytest.skip("redis-server is not installed")
    server = PrivateRedis(free_port(), directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()
