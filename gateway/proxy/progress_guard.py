"""Ends the wait for an engine that is lost or stuck, or whose answer exceeds its time limit."""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Protocol, Self

import msgspec

from gateway.server.http.http_exchange import ClientGoneError

CHECK_S = 0.25


class Losable(Protocol):
    """Something that can be lost; LiveEngine implements it."""

    @property
    def lost(self) -> bool:
        """Return whether no result is expected from it."""
        ...

    @property
    def stuck(self) -> bool:
        """Return whether requests whose answer has not begun should move to another engine."""
        ...


class AnswerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of one attempt in seconds."""

    whole_s: float
    """Timeout of the complete answer, without the client's time."""
    start_s: float = inf
    """Timeout of the first chunk, if it follows bounded work. Else only the engine's state ends the wait."""
    lost_s: float = 1.0
    """Timeout of a lost engine's next chunk, or of a stuck engine's first chunk."""
    client_s: float = 120.0
    """Timeout for the client to accept a chunk."""


class EngineSilentError(Exception):
    """The engine is lost, stuck, or over a time limit. `late`: it may still be working."""

    def __init__(self, *, late: bool) -> None:
        super().__init__("the answer took too long" if late else "the engine is silent")
        self.late = late


class ProgressGuard:
    """Guards the current task's calls to one engine with a single timer.

    Leaving the guard raises EngineSilentError if it ended the wait, or ClientGoneError if the client read nothing in
    that time (`sending`).
    """

    def __init__(self, engine: Losable, limits: AnswerLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._begun = False
        self.silent_s = self._spent_s = 0.0
        """`silent_s`: seconds since the engine sent something. Who follows a begun answer can reset it."""
        self.sending = False
        """The caller sets it while it waits for the client to read."""
        self._struck: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def progress(self) -> None:
        """Record that the engine sent something."""
        self.silent_s = 0.0
        self._begun = True

    def _check(self) -> None:
        self.silent_s += CHECK_S
        if not self.sending:
            self._spent_s += CHECK_S
        self._struck = self._over()
        if self._struck is not None and self._task is not None:
            self._task.cancel()
        else:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _over(self) -> Exception | None:
        """Return the error that ends the wait now, None to continue waiting."""
        limits, silent_s = self._limits, self.silent_s
        if self.sending:
            return ClientGoneError() if silent_s >= limits.client_s else None
        if silent_s >= limits.lost_s and (self._engine.lost or (not self._begun and self._engine.stuck)):
            return EngineSilentError(late=False)
        if not self._begun and silent_s >= limits.start_s:
            return EngineSilentError(late=False)
        return EngineSilentError(late=True) if self._spent_s >= limits.whole_s else None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Kept, the task and the error would keep each other by the error's traceback until a garbage collection.
        task, struck = self._task, self._struck
        self._task = self._struck = None
        try:
            # If it was cancelled from outside as well, that goes first.
            if struck is not None and kind is asyncio.CancelledError and task is not None and task.uncancel() == 0:
                raise struck from None
        finally:
            del task, struck
