"""The websocket of the Fleet page: who can watch which pools, and when a viewer is too slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from uvicorn.protocols.utils import ClientDisconnected

from controlplane.access.second_factors import ENROLLING
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
    """Sends a keyframe, then the newest column frame; receives `keyframe`, `pause` and `resume`.

    Frames contain only the pools that the person can see. Keyframes on request are sent at most once per second. Close
    codes: 4401 not signed in or session ended; 4403 no role in any pool; 4409 roles have changed, connect again; 4400
    unknown message; 4408 nothing read for STALL_S seconds.
    """

    stall_s = STALL_S

    async def connect(self) -> None:
        """Accept the connection. Close anonymous ones with a code; start sending frames to the others."""
        self._sender: asyncio.Task[None] | None = None
        # Only an accepted socket can send the browser a close code; before that the browser sees a bare 403.
        await self.accept()
        user, session = self.scope.get("user"), self.scope.get("session")
        known = user is not None and user.is_authenticated and session is not None and session.session_key
        if not known or ENROLLING in session:
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
        self._guard = asyncio.create_task(self._close_on_sign_out())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Execute one of the viewer's three commands."""
        if self._sender is None:
            return
        command = _command(text_data)
        if command == "keyframe":
            self._viewer.ask_keyframe()
        elif command == "pause":
            self._viewer.pause()
        elif command == "resume":
            self._viewer.resume()
        else:
            await self.close(code=BAD_MESSAGE)

    async def disconnect(self, code: int) -> None:
        """Remove the viewer."""
        if self._sender is not None:
            self._feed.leave(self._viewer)
            session_watch().leave(self._watched)
            self._sender.cancel()
            self._guard.cancel()

    async def _close_on_sign_out(self) -> None:
        """Close once the session ends or its visible pools change; nothing is sent after that."""
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
            # `disconnect` removes a viewer that has left meanwhile.
            with contextlib.suppress(ClientDisconnected):
                try:
                    async with asyncio.timeout(self.stall_s):
                        await self.send(bytes_data=frame)
                    continue
                except TimeoutError:
                    self._feed.leave(self._viewer)
                    await self.close(code=STALLED)
            return


def _command(text: str | None) -> Any:
    """Return the command in the message; None if it is unknown."""
    if text is None or len(text) > MAX_MESSAGE:
        return None
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message.get("type") if isinstance(message, dict) else None
