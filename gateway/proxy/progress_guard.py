"""Ends the wait for an engine that is lost or stuck, or whose answer takes longer than it ever can."""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Protocol, Self

import msgspec

from gateway.http.http_exchange import ClientGoneError

CHECK_S = 0.25


class Losable(Protocol):
    """Interface of what may be lost; LiveEngine implements it."""

    @property
    def lost(self) -> bool:
        """Whether no result is to be expected from it."""
        ...

    @property
    def stuck(self) -> bool:
        """Whether requests that it has not begun to answer should go elsewhere."""
        ...


class AnswerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long one attempt waits for its engine. Seconds."""

    whole_s: float
    """For the whole answer, without the time that the client takes."""
    start_s: float = inf
    """For the first piece, where that is bounded work; else only the engine's state ends the wait."""
    lost_s: float = 1.0
    """For the next piece of an engine that is lost, or the first of one that is stuck."""
    client_s: float = 120.0
    """For the client to take a piece."""


class EngineSilentError(Exception):
    """The engine is lost or stuck, or took longer than a limit; `late`: it may still be at work."""

    def __init__(self, *, late: bool) -> None:
        super().__init__("the answer took too long" if late else "the engine is silent")
        self.late = late


class ProgressGuard:
    """Guards the calls of the current task to one engine, by one timer for all of them.

    Leaving the guard raises EngineSilentError if it struck, or ClientGoneError if it was the client that read nothing
    meanwhile (`sending`).
    """

    def __init__(self, engine: Losable, limits: AnswerLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._begun = False
        self._silent_s = self._spent_s = 0.0
        self.sending = False
        """Set by the caller while it waits for the client to read."""
        self._struck: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def progress(self) -> None:
        """Note that the engine sent something."""
        self._silent_s = 0.0
        self._begun = True

    def _check(self) -> None:
        self._silent_s += CHECK_S
        if not self.sending:
            self._spent_s += CHECK_S
        self._struck = self._over()
        if self._struck is not None and self._task is not None:
            self._task.cancel()
        else:
            self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _over(self) -> Exception | None:
        """Return the error that ends the wait now; None: it goes on."""
        limits, silent_s = self._limits, self._silent_s
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
        if (
            self._struck is not None
            and kind is asyncio.CancelledError
            and self._task is not None
            # Otherwise it was cancelled from outside as well, and that goes first.
            and self._task.uncancel() == 0
        ):
            raise self._struck from None
