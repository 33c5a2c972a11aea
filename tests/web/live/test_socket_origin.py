"""Origins that may open a websocket, and the response of an address without one."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter

from web.live.routing import websocket_urlpatterns
from web.live.socket_origin import SameOrigin


async def accept(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})


async def answer(app: Any, path: str = "/ws/fleet", **headers: str) -> str:
    """Return the type of the first message that a client receives."""
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "websocket", "path": path, "query_string": b"", "headers": sent, "subprotocols": []}
    communicator = ApplicationCommunicator(app, scope)
    await communicator.send_input({"type": "websocket.connect"})
    return str((await communicator.receive_output())["type"])


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("Console.example", "https://console.example", True),
        ("console.example:443", "https://console.example", True),
        ("[::1]:8000", "http://[::1]:8000", True),
        ("inside:8000", "https://trusted.example:8443", True),
        ("localhost:8000", "http://localhost:9999", False),
        ("localhost:8000", "http://localhost", False),
        ("localhost:8000", "http://evil.example:8000", False),
        ("localhost:8000", "http://localhost:8000.evil.example", False),
        ("localhost:8000", "http://localhost:99999", False),
        ("localhost:8000", "null", False),
        ("localhost:8000", "", False),
        ("", "", False),
    ],
)
async def test_only_pages_of_the_same_host_and_port_are_accepted(host: str, origin: str, allowed: bool) -> None:
    app = SameOrigin(accept, ["https://trusted.example:8443"])
    kind = await answer(app, host=host, origin=origin)
    assert kind == ("websocket.accept" if allowed else "websocket.close")


@pytest.mark.parametrize("path", ["/ws/nothing", "/ws/fleet/x", "/"])
async def test_address_without_a_websocket_rejects_it(path: str) -> None:
    assert await answer(URLRouter(websocket_urlpatterns), path) == "websocket.close"
