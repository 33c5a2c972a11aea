"""Private Valkey servers for tests, started and killed by their PID, and connections to them."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import redis

from bench.live.loopback_ports import free_port
from controlplane.project.processes.bus_server import new_url, server_child, server_program
from gateway.bus.redis_bus import RedisBus, RedisBusSettings
from gateway.bus.redis_link import LinkSettings
from kvstore.keys.keyring import Keyring
from tests.patience import PATIENCE_S, wait_until

# A busy machine must not be mistaken for a lost server.
_PATIENT = RedisBusSettings(wait_s=PATIENCE_S, link=LinkSettings(connect_s=PATIENCE_S, answer_s=PATIENCE_S))


class PrivateRedis:
    """One server without persistence; a kill discards its contents, like a lost machine."""

    def __init__(
        self,
        url: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        self.url = url
        self._log = log
        self._command, self._environment = command, {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and return once it responds."""
        self._process = subprocess.Popen(self._command, env=self._environment, stdout=self._log, stderr=self._log)
        wait_until(self._responds, "the server does not respond")

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

    def _responds(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


@contextmanager
def private_redis(directory: Path) -> Iterator[PrivateRedis]:
    """Run a server on a free loopback port for the block, as an installation on several machines has it."""
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(directory))
    with _running(PrivateRedis(f"redis://127.0.0.1:{port}/0", (server_program(), *options), {})) as server:
        yield server


@contextmanager
def private_bus() -> Iterator[PrivateRedis]:
    """Run a server for the block as `manage.py up` does: on a Unix socket, with a password."""
    with tempfile.TemporaryDirectory() as directory:
        url = new_url(Path(directory) / "bus.sock")
        child = server_child("bus", url)
        with _running(PrivateRedis(url, child.argv, child.env)) as server:
            yield server


@contextmanager
def _running(server: PrivateRedis) -> Iterator[PrivateRedis]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


def patient_bus(url: str, keyring: Keyring) -> RedisBus:
    """Return a bus connection of a further process at `url`, with long timeouts."""
    return RedisBus(url, keyring, _PATIENT)
