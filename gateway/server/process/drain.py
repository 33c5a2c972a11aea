"""Drains a gateway: new requests are rejected, running ones can complete, and the remaining ones are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from typing_extensions import override

from gateway.server.http.openai_error import ApiError

SHUTDOWN = "shutting_down"
CUT_OFF = "shutdown"
"""Error code of a request that was cut off by this process's shutdown."""
SENTENCE = "This gateway is shutting down; retry."


class ShuttingDownError(ApiError):
    """No new work is accepted. The connection closes, so that the client's next one reaches another gateway."""

    def __init__(self) -> None:
        super().__init__(503, SENTENCE, SHUTDOWN, retry_after_s=1.0, dropped_reason="rejected-shutting-down")

    @property
    @override
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*super().headers, (b"connection", b"close")]


class Drain:
    """Running work, and whether more is accepted. Only the event loop's thread calls it.

    Mutable: `begun` and `cut`, the count, and the tasks that relay answers.
    """

    def __init__(self, reject_waiting: Callable[[], None]) -> None:
        """`reject_waiting` answers the requests that still wait for an engine."""
        self.begun = False
        self.cut = False
        """Whether requests that end now end because of the shutdown, not because of their clients."""
        self.under_way = 0
        """Requests that have not ended, counted by the serving code."""
        self._reject_waiting = reject_waiting
        self._relays: set[asyncio.Task[object]] = set()

    @contextmanager
    def relay(self) -> Iterator[None]:
        """Let `cut_off` cancel the running task until the block ends. Raise ShuttingDownError after `cut_off`."""
        # A relay that begins after `cut_off` would be cancelled by nothing.
        if self.cut:
            raise ShuttingDownError
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a relay runs in a task")
        self._relays.add(task)
        try:
            yield
        finally:
            self._relays.discard(task)

    def begin(self) -> None:
        """Stop accepting new work."""
        self.begun = True

    def cut_off(self) -> None:
        """End the running requests. Each gets an answer, or its stream ends with an error event."""
        self.begun = self.cut = True
        self._reject_waiting()
        for task in self._relays:
            task.cancel()
