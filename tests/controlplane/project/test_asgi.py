"""The composition root: who serves which connection, and what a start and a stop do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from controlplane.project import asgi
from controlplane.project.state_lock import hold_state
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.gateway import Gateway

ROOT = Path(__file__).resolve().parents[3]


class Recorder:
    """An ASGI app that notes what it was given."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.paths.append(scope["path"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})


class Composed:
    """A Switchyard around recorders, with a real edge and gateway in front."""

    def __init__(self, state_dir: Path) -> None:
        gateway = Gateway(InProcessBus(), fleet_secret=b"s", state_dir=state_dir, settings=GatewaySettings())
        self.pages, self.sockets = Recorder(), Recorder()
        self.app = asgi.Edge(asgi.Switchyard(gateway, self.pages, self.sockets))
        self.sent: list[Any] = []

    async def connect(self, kind: str, path: str) -> None:
        scope = {
            "type": kind,
            "path": path,
            "raw_path": path.encode(),
            "method": "GET",
            "headers": [(b"host", b"localhost")],
        }
        scope |= {"query_string": b"", "client": ("127.0.0.1", 5)}
        await self.app(scope, self._receive, self._send)

    async def live(self) -> list[str]:
        """Start and stop, and return the messages the server got."""
        messages = asyncio.Queue[dict[str, str]]()
        for kind in ("lifespan.startup", "lifespan.shutdown"):
            messages.put_nowait({"type": kind})
        await self.app({"type": "lifespan"}, messages.get, self._send)
        return [message["type"] for message in self.sent]

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.fixture
def composed(tmp_path: Path) -> Composed:
    return Composed(tmp_path)


@pytest.fixture
def own_lock(tmp_path: Path) -> Any:
    """Give the test a state directory whose lock it may take."""
    with hold_state(tmp_path), override_settings(STATE_DIR=tmp_path):
        yield tmp_path


@pytest.mark.parametrize("path", ["/", "/login", "/static/x.css", "/api/v1/engines"])
async def test_pages_go_to_django(composed: Composed, path: str) -> None:
    await composed.connect("http", path)
    assert composed.pages.paths == [path]


@pytest.mark.parametrize("path", ["/live", "/ready", "/metrics", "/v1/models", "/api/v1/route"])
async def test_traffic_never_reaches_django(composed: Composed, path: str) -> None:
    await composed.connect("http", path)
    assert composed.pages.paths == []
    assert composed.sent[0]["type"] == "http.response.start"


async def test_websockets_go_to_channels(composed: Composed) -> None:
    await composed.connect("websocket", "/ws/fleet")
    assert (composed.sockets.paths, composed.pages.paths) == (["/ws/fleet"], [])


async def test_it_starts_without_the_database(
    composed: Composed, own_lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(MigrationRecorder, "applied_migrations", gone)
    monkeypatch.setattr(asgi, "publish", gone)
    assert await composed.live() == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.processes
def test_a_second_server_process_on_the_same_state_does_not_start(tmp_path: Path) -> None:
    program = "import asyncio, sys; from pathlib import Path;"
    program += "from controlplane.project.state_lock import hold_state;"
    program += "hold_state(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        server = subprocess.run(
            [
                sys.executable,
                "-m",
                "uvicorn",
                "controlplane.project.asgi:application",
                "--lifespan",
                "on",
                "--port",
                "18497",
            ],
            cwd=ROOT,
            env={**os.environ, "SWITCHYARD_STATE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert server.returncode != 0
    assert f"pid {holder.pid}" in server.stderr


async def test_a_host_that_is_not_ours_is_refused_before_anything_else(composed: Composed) -> None:
    scope = {"type": "http", "path": "/", "method": "GET", "headers": [(b"host", b"evil.example")]}
    await asgi.application(scope, composed._receive, composed._send)
    assert composed.sent[0]["status"] == 400
