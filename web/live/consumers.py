"""The websocket of the Fleet page; thin: who may watch what, and when the viewer is too slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from uvicorn.protocols.utils import ClientDisconnected

from controlplane.platform.actor import CONSOLE, person
from web.live.feed import fleet_feed
from web.live.scope import NOTHING, scope_of
from web.live.session_watch import session_watch

SIGNED_OUT = 4401
NO_ROLE = 4403
BAD_MESSAGE = 4400
STALLED = 4408
ROLES_CHANGED = 4409
STALL_S = 10.0
MAX_MESSAGE = 256


class FleetConsumer(AsyncWebsocketConsumer):
    """Sends a keyframe, then the newest column frame; hears `keyframe`, `pause` and `resume`.

    Frames hold the pools that the person may see. Keyframes on request come at most once per second. Close codes: 4401
    not signed in, or no longer; 4403 no role in any pool; 4409 other roles than before, connect again; 4400 a message
    that is none of ours; 4408 nothing read for STALL_S seconds.
    """

    stall_s = STALL_S

    async def connect(self) -> None:
        """Accept, tell anonymous ones why they may not stay, and start sending to the others."""
        self._sender: asyncio.Task[None] | None = None
        # Only an accepted socket can tell the browser why it is closed; before that it sees a bare 403.
        await self.accept()
        user, session = self.scope.get("user"), self.scope.get("session")
        if user is None or not user.is_authenticated or session is None or not session.session_key:
            await self.close(code=SIGNED_OUT)
            return
        scope = await database_sync_to_async(scope_of)(person(user, via=CONSOLE))
        if scope == NOTHING:
            await self.close(code=NO_ROLE)
            return
        self._feed = fleet_feed()
        self._viewer = self._feed.join(scope)
        self._watched = session_watch().join(session.session_key, user.pk, scope)
        self._sender = asyncio.create_task(self._send_frames())
        self._guard = asyncio.create_task(self._show_out())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Obey the viewer's three words."""
        if self._sender is None:
            return
        verb = _verb(text_data)
        if verb == "keyframe":
            self._viewer.ask_keyframe()
        elif verb == "pause":
            self._viewer.pause()
        elif verb == "resume":
            self._viewer.resume()
        else:
            await self.close(code=BAD_MESSAGE)

    async def disconnect(self, code: int) -> None:
        """Forget the viewer."""
        if self._sender is not None:
            self._feed.leave(self._viewer)
            session_watch().leave(self._watched)
            self._sender.cancel()
            self._guard.cancel()

    async def _show_out(self) -> None:
        """Close when the session has ended or shows other pools; nothing is sent after that."""
        await self._watched.changed.wait()
        self._feed.leave(self._viewer)
        if self._sender is not None:
            self._sender.cancel()
        await self.close(code=SIGNED_OUT if self._watched.ended else ROLES_CHANGED)

    async def _send_frames(self) -> None:
        while True:
            frame = await self._viewer.next_frame()
            if frame is None:
                seq, frame = self._feed.keyframe(self._viewer.scope)
                self._viewer.keyframe_sent(seq)
            # A viewer that is gone meanwhile is forgotten by `disconnect`.
            with contextlib.suppress(ClientDisconnected):
                try:
                    async with asyncio.timeout(self.stall_s):
                        await self.send(bytes_data=frame)
                    continue
                except TimeoutError:
                    self._feed.leave(self._viewer)
                    await self.close(code=STALLED)
            return


def _verb(text: str | None) -> Any:
    """Return what the message asks for; None when it is none of ours."""
    if text is None or len(text) > MAX_MESSAGE:
        return None
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message.get("type") if isinstance(message, dict) else None
