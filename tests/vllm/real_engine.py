"""Start, break and end vLLM processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.live.loopback_ports import free_ports

START_S = 1200.0
"""Two engines start in 25 s on an idle machine with two cores, and in many minutes on a busy one."""
MODEL = "tiny"
BLOCK_TOKENS = 32
"""vLLM's attention for CPUs requires blocks of a multiple of this."""
BLOCKS = 128
"""One of them is reserved, so that the caches hold 4,064 tokens each."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # /pause, /sleep and /reset_prefix_cache
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


class RealEngine:
    """One vLLM server. Mutable: `process`, None while it does not run."""

    def __init__(
        self, python: str, model: Path, log: Path, *, name: str = MODEL, flags: Sequence[str] = (), **environment: str
    ) -> None:
        """Describe a server: `name` is its served model (same name, same pool), `environment` adds variables."""
        self.port, events, replay = free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.events, self.replay = f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"
        self.process: subprocess.Popen[bytes] | None = None
        self._log = log
        self._environment = {**os.environ, **ENVIRONMENT, **environment}
        kv_events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{events}",
            "replay_endpoint": self.replay,
        }
        self._command = [
            *("nice", "-n", "10", python, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model), "--served-model-name", name, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "4"),
            *("--max-num-batched-tokens", "2048", "--block-size", str(BLOCK_TOKENS)),
            *("--num-gpu-blocks-override", str(BLOCKS), "--kv-cache-memory-bytes", str(64 << 20)),
            *("--enable-prompt-tokens-details", "--enable-server-load-tracking"),
            *("--kv-events-config", json.dumps(kv_events), "--shutdown-timeout", "10", *flags),
        ]

    def start(self) -> None:
        """Start the processes; `wait` returns once they respond."""
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command, stdout=out, stderr=out, env=self._environment, start_new_session=True
            )
        # Linux shares the CPU among sessions first, so niceness within its own session has no effect.
        with suppress(OSError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text("10")

    def wait(self) -> None:
        """Wait until the engine is healthy; raise an error with the end of its log if its process ended."""
        until_s = time.monotonic() + START_S
        while True:
            with suppress(OSError):
                if self.get("/health")[0] == 200:
                    return
            ended = self.process is None or self.process.poll() is not None
            if ended or time.monotonic() > until_s:
                raise AssertionError(self._log.read_text()[-4000:])
            time.sleep(0.3)

    def restart(self) -> None:
        """End the engine, if it runs, and start it again on the same ports."""
        self.kill()
        self.start()
        self.wait()

    def kill(self) -> None:
        """Kill all its processes at once."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def core_pid(self) -> int:
        """Return the scheduler's process id, found by the title of the server's child."""
        assert self.process is not None
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(folder.name)
                if os.getpgid(pid) == self.process.pid and b"EngineCore" in (folder / "cmdline").read_bytes():
                    return pid
        raise AssertionError("the engine has no core process")

    def terminate(self) -> None:
        """Send SIGTERM to the server, as Kubernetes does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body."""
        return self._ask(urllib.request.Request(self.url + path))

    def post(self, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send JSON, or no body, and return status and body."""
        data = b"" if body is None else json.dumps(body).encode()
        return self._ask(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}))

    def _ask(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@contextmanager
def while_running(engines: list[RealEngine]) -> Iterator[list[RealEngine]]:
    """Start the engines concurrently, yield them once all are healthy, and kill them at the end."""
    with ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.kill)
            engine.start()
        for engine in engines:
            engine.wait()
        yield engines
