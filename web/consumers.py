"""The websocket of the Fleet page; thin: who may watch, and when the viewer is too slow."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from web.live.feed import fleet_feed
from web.live.session_watch import session_watch

SIGNED_OUT = 4401
BAD_MESSAGE = 4400
STALLED = 4408
STALL_S = 10.0
MAX_MESSAGE = 256


class FleetConsumer(AsyncWebsocketConsumer):
    """Sends a keyframe, then the newest column frame; hears `keyframe`, `pause` and `resume`.

    Close codes: 4401 not signed in, or no longer; 4400 a message that is none of ours; 4408 nothing read for
    STALL_S seconds.
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
        self._feed = fleet_feed()
        self._viewer = self._feed.join()
        self._ended = session_watch().join(session.session_key, user.pk)
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
            session_watch().leave(self._ended)
            self._sender.cancel()
            self._guard.cancel()

    async def _show_out(self) -> None:
        """Close when the session has ended; nothing is sent after that."""
        await self._ended.wait()
        self._feed.leave(self._viewer)
        if self._sender is not None:
            self._sender.cancel()
        await self.close(code=SIGNED_OUT)

    async def _send_frames(self) -> None:
        while True:
            frame = await self._viewer.next_frame()
            if frame is None:
                seq, frame = self._feed.keyframe()
                self._viewer.keyframe_sent(seq)
            try:
                await asyncio.wait_for(self.send(bytes_data=frame), self.stall_s)
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
