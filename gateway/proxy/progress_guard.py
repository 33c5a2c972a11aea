"""Ends the wait for a silent engine: after a timeout, or as soon as it is known to be lost or stuck."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol, Self

from gateway.http.http_exchange import ClientGoneError

CHECK_S = 0.25


class Losable(Protocol):
    """Whatever may be given up for lost; a LiveEngine is."""

    @property
    def lost(self) -> bool:
        """Whether nothing is to be expected from it."""
        ...

    @property
    def stuck(self) -> bool:
        """Whether what it has not begun to answer should go elsewhere."""
        ...


class EngineSilentError(Exception):
    """The engine sent nothing for too long, or was lost meanwhile."""


class ProgressGuard:
    """Guards the calls of the current task to one engine, by one timer for all of them.

    The first sign may take `first_s`, each further one `idle_s`; an engine that
    is lost gets `lost_s`, and so does one that is stuck for its first sign. All in seconds. Leaving the
    guard raises EngineSilentError if it struck, or ClientGoneError if it was the client that took nothing
    meanwhile (`sending`).
    """

    def __init__(self, engine: Losable, *, first_s: float, idle_s: float, lost_s: float = 1.0) -> None:
        self._engine = engine
        self._begun = False
        self._limit_s = first_s
        self._idle_s = idle_s
        self._lost_s = lost_s
        self._silent_s = 0.0
        self.sending = False
        """Set by the caller while it waits for the client to take bytes."""
        self._struck = False
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def progress(self) -> None:
        """Note that the engine sent something."""
        self._silent_s = 0.0
        self._begun = True
        self._limit_s = self._idle_s

    def _look(self) -> None:
        self._silent_s += CHECK_S
        lost = self._engine.lost or (not self._begun and self._engine.stuck)
        limit_s = min(self._limit_s, self._lost_s) if lost else self._limit_s
        if self._silent_s >= limit_s and self._task is not None:
            self._struck = True
            self._task.cancel()
        else:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._look)

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._struck and kind is asyncio.CancelledError and self._task is not None and self._task.uncancel() == 0:
            raise (ClientGoneError if self.sending else EngineSilentError) from None
