"""The composition root of web: the app of each connection, and the effects of a start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import DatabaseError
from django.db.migrations.recorder import MigrationRecorder

from controlplane.project import asgi
from controlplane.project.checks import UnsafeSettingsError


class Recorder:
    """An ASGI app that records its calls."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Any, _receive: Any, _send: Any) -> None:
        self.paths.append(scope["path"])


class Served:
    """A web app over recorders, and the messages that it sends."""

    def __init__(self) -> None:
        self.pages, self.sockets = Recorder(), Recorder()
        self.app = asgi.Web(self.pages, self.sockets)
        self.sent: list[Any] = []

    async def live(self) -> list[str]:
        """Start and stop, and return the messages that the server received."""
        messages = asyncio.Queue[dict[str, str]]()
        for kind in ("lifespan.startup", "lifespan.shutdown"):
            messages.put_nowait({"type": kind})
        await self.app({"type": "lifespan"}, messages.get, self.send)
        return [message["type"] for message in self.sent]

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.fixture
def served() -> Served:
    return Served()


async def test_pages_are_routed_to_django_and_websockets_to_channels(served: Served) -> None:
    await served.app({"type": "http", "path": "/login"}, served.receive, served.send)
    await served.app({"type": "websocket", "path": "/ws/fleet"}, served.receive, served.send)
    assert (served.pages.paths, served.sockets.paths) == (["/login"], ["/ws/fleet"])


async def test_app_starts_without_the_database(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(MigrationRecorder, "applied_migrations", gone)
    monkeypatch.setattr(asgi, "publish", gone)
    assert await served.live() == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_server_receives_the_reason_of_a_failed_start(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject() -> None:
        raise UnsafeSettingsError("the secret is weak")

    monkeypatch.setattr(asgi, "reject_unsafe", reject)
    with pytest.raises(UnsafeSettingsError):
        await served.live()
    assert served.sent == [
        {"type": "lifespan.startup.failed", "message": "UnsafeSettingsError: the secret is weak"},
    ]


async def test_unknown_host_is_rejected_first(served: Served) -> None:
    scope = {"type": "http", "path": "/", "method": "GET", "headers": [(b"host", b"evil.example")]}
    await asgi.application(scope, served.receive, served.send)
    assert served.sent[0]["status"] == 400
