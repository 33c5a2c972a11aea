"""A websocket client without a network; the one of channels requires a server that is not installed."""

from __future__ import annotations

from typing import Any

from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.contrib.auth.models import User

from tests.patience import PATIENCE_S
from web.live.routing import websocket_urlpatterns

APP = URLRouter(websocket_urlpatterns)


class OneSession(dict[str, object]):
    """A session with this key."""

    def __init__(self, session_key: str, **values: object) -> None:
        super().__init__(values)
        self.session_key = session_key


class SocketClient(ApplicationCommunicator):
    """One connection to /ws/fleet as `user`."""

    def __init__(
        self, user: object = None, app: Any = APP, origin: bytes = b"", session_key: str = "a-session"
    ) -> None:
        headers = [(b"host", b"127.0.0.1"), *([(b"origin", origin)] if origin else [])]
        super().__init__(
            app,
            {
                "type": "websocket",
                "path": "/ws/fleet",
                "query_string": b"",
                "headers": headers,
                "subprotocols": [],
                "user": User(pk=1, username="op", is_superuser=True) if user is None else user,
                "session": OneSession(session_key),
            },
        )

    async def connect(self) -> bool:
        """Open the connection; return whether it was accepted."""
        await self.send_input({"type": "websocket.connect"})
        return (await self.receive_output())["type"] == "websocket.accept"

    async def say(self, text: str | None = None, data: bytes | None = None) -> None:
        """Send a text or a binary message."""
        await self.send_input({"type": "websocket.receive", "text": text, "bytes": data})

    async def receive(self) -> bytes:
        """Return the next binary message."""
        message = await self.receive_output(PATIENCE_S)
        assert message["type"] == "websocket.send", message
        return message["bytes"]

    async def disconnect(self) -> None:
        """Disconnect, and wait for the application to end."""
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait()
