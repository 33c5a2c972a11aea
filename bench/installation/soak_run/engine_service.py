"""The operator's service behind a webhook actuator: start and stop real engines, and count the orders received.

It defines "once in effect": the same idempotency key never starts or stops an engine twice, and all keys are kept.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from typing_extensions import override

from bench.live.live_fleet import engine_command
from bench.live.loopback_ports import free_ports

MODEL = "hooked-8b"
_OPTIONS = ("--served-model-name", MODEL, "--time-scale", "50", "--block-size", "64", "--num-blocks", "500")


class EngineService:
    """The service. Mutable: keys in `started` and `stopped`, calls per key, and the processes by engine name."""

    def __init__(self, root: Path) -> None:
        self.started: dict[str, dict[str, str]] = {}
        self.stopped: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment: Mapping[str, str] = {}
        self._root = root
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(service.execute(body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            @override
            def log_message(self, *_args: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def execute(self, order: dict[str, object]) -> dict[str, object]:
        """Execute an order once for each key, and return the same answer for repetitions."""
        key = str(order["idempotency_key"])
        with self._lock:
            # Repetitions are counted, so that the report shows how often a job retried.
            self.calls[key] = self.calls.get(key, 0) + 1
            if order["action"] == "start":
                if key not in self.started:
                    self.started[key] = self._start()
                return {"engine": self.started[key]}
            engine = order["engine"]
            if key not in self.stopped and isinstance(engine, dict):
                self.stopped[key] = str(engine["engine_id"])
                self._stop(str(engine["name"]))
            return {"status": "done"}

    def alive(self) -> set[str]:
        """Return the keys of the engines that are started and not stopped. A key is its engine's id."""
        return self.started.keys() - set(self.stopped.values())

    def close(self) -> None:
        """Stop the service and its engines."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _start(self) -> dict[str, str]:
        ports = free_ports(3)
        name = f"gpu-{len(self.started)}"
        command = engine_command(ports, list(_OPTIONS))
        self.processes[name] = subprocess.Popen(command, cwd=self._root, env=dict(self.environment))
        http, events, replay = ports
        return {
            "name": name,
            "url": f"http://127.0.0.1:{http}",
            "kv_events_endpoint": f"tcp://127.0.0.1:{events}",
            "kv_replay_endpoint": f"tcp://127.0.0.1:{replay}",
        }

    def _stop(self, name: str) -> None:
        process = self.processes.get(name)
        if process is not None:
            process.kill()
            process.wait()
