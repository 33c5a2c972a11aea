"""The output of one request between the engine and its HTTP response."""

from __future__ import annotations

import asyncio


class TokenStream:
    """Counts generated tokens and wakes its only reader when there are enough to send.

    The first token and the end are passed on at once, others every `interval` tokens.
    """

    __slots__ = ("_interval", "_taken", "_waiter", "broken", "cached_tokens", "finished", "generated", "request_id")

    def __init__(self, request_id: str, interval: int) -> None:
        self.request_id = request_id
        self.cached_tokens = 0
        self.generated = 0
        self.finished = False
        self.broken = False
        """Whether the stream ended early, because the engine stops or the client left."""
        self._interval = interval
        self._taken = 0
        self._waiter: asyncio.Future[None] | None = None

    def add_token(self) -> None:
        """Count one more token."""
        self.generated += 1
        if self.generated == 1 or self.generated - self._taken >= self._interval:
            self._wake()

    def finish(self) -> None:
        """Mark the last token as generated."""
        self.finished = True
        self._wake()

    def break_off(self) -> None:
        """End the stream early."""
        self.broken = True
        self._wake()

    async def burst(self) -> tuple[int, int] | None:
        """Wait for new tokens and return their range [first, end). Return None after the last token or an early end."""
        while not self._ready():
            if self.finished or self.broken:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        first, self._taken = self._taken, self.generated
        return first, self.generated

    def _ready(self) -> bool:
        fresh = self.generated - self._taken
        if self.broken or not fresh:
            return False
        return self.finished or self._taken == 0 or fresh >= self._interval

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
