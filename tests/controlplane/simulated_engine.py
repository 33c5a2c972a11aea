"""Simulated engines as processes, for tests that inspect one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field

from bench.live.loopback_ports import free_ports

STARTED_S = 30


@dataclass
class SimulatedEngine:
    """One engine server. `start` returns once it listens."""

    model: str = "m-8b"
    block_tokens: int = 16
    events: bool = True
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    extra: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the URL of the engine."""
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def events_endpoint(self) -> str:
        """Return the endpoint of the engine's KV events."""
        return f"tcp://127.0.0.1:{self.ports[1]}"

    def start(self) -> None:
        """Start the engine and wait until its port is open."""
        argv = [sys.executable, "-m", "simulator.engine_server", "--port", str(self.ports[0])]
        argv += ["--served-model-name", self.model, "--block-size", str(self.block_tokens), "--num-blocks", "4096"]
        argv += ["--time-scale", "50", "--parent-pid", str(os.getpid()), *self.extra]
        if self.events:
            argv += ["--kv-events-port", str(self.ports[1]), "--kv-replay-port", str(self.ports[2])]
        self.process = subprocess.Popen(argv)
        deadline = time.monotonic() + STARTED_S
        while not self._listens():
            assert time.monotonic() < deadline and self.process.poll() is None, "the simulated engine did not start"
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the engine."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports[0])) == 0
