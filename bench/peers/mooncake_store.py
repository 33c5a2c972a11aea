"""Mooncake Store as a peer: its master and a client run in separate processes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from bench.live.loopback_ports import free_ports

_PROGRAM = Path(__file__).with_name("mooncake_client.py")
_SEGMENT_BYTES, _BUFFER_BYTES = 256 << 20, 64 << 20
_START_S = 60.0


class MooncakeStore(msgspec.Struct, frozen=True):
    """The command that runs the peer's programs, and the address of its master."""

    environment: dict[str, str]
    master: str

    @contextmanager
    def client(self, segment_bytes: int) -> Iterator[subprocess.Popen[str]]:
        """Yield a ready client that contributes this many bytes to the store, 0 for none."""
        [port] = free_ports(1)
        command = [sys.executable, str(_PROGRAM), f"127.0.0.1:{port}", self.master]
        process = subprocess.Popen(
            [*command, str(segment_bytes), str(_BUFFER_BYTES)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            if ask(process, {"do": "set_up", "seconds": _START_S}) != {"result": 0}:
                raise RuntimeError("Mooncake's client does not reach its master")
            yield process
        finally:
            process.kill()
            process.wait()


def ask(process: subprocess.Popen[str], request: Mapping[str, object]) -> dict[str, float]:
    """Send a client a command and return its answer."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the client has no pipes")
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        # The library also writes to standard output.
        with suppress(json.JSONDecodeError):
            answer: dict[str, float] = json.loads(line)
            return answer
    raise RuntimeError(f"Mooncake's client ended with {process.wait()}")


@contextmanager
def mooncake_store() -> Iterator[MooncakeStore]:
    """Yield a running store with one segment, installing it if needed. Raises RuntimeError if that fails."""
    environment = {**os.environ, **_installed(), "MC_LOG_LEVEL": "ERROR", "GLOG_minloglevel": "2"}
    rpc_port, metrics_port = free_ports(2)
    command = [environment["MOONCAKE_MASTER"], f"--rpc_port={rpc_port}"]
    command += ["--rpc_address=127.0.0.1", f"--metrics_port={metrics_port}"]
    master = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    store = MooncakeStore(environment, f"127.0.0.1:{rpc_port}")
    try:
        with store.client(_SEGMENT_BYTES):
            yield store
    finally:
        master.kill()
        master.wait()


def _installed() -> dict[str, str]:
    """Return the environment variables of its programs, installing it if needed."""
    done = subprocess.run([".ci/setup-mooncake"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError("Mooncake Store cannot be installed: .ci/setup-mooncake says why")
    return dict(part.split("=", 1) for part in shlex.split(done.stdout))
