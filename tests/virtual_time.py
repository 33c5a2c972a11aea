"""An event loop whose clock jumps to the next timer when nothing else is pending.

Real code and real sockets run on this machine, and minutes pass in milliseconds. Work of other threads takes no
virtual time, so no timed behavior may depend on it.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

SPEED = 100.0
"""Virtual seconds per real second at most, so that bytes which the kernel has not delivered yet cost little time."""
_GRACE_S = 0.001
_REAL_MONOTONIC, _REAL_TIME = time.monotonic, time.time


class _Clock:
    """Mutable: the virtual seconds since its real start."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.monotonic_s, self.unix_s = _REAL_MONOTONIC(), _REAL_TIME()


_running: list[_Clock] = []
"""The one that runs. Modules that are imported meanwhile keep its functions, which are real afterwards."""


def _monotonic() -> float:
    return _running[-1].monotonic_s + _running[-1].passed_s if _running else _REAL_MONOTONIC()


def _time() -> float:
    return _running[-1].unix_s + _running[-1].passed_s if _running else _REAL_TIME()


class _JumpingSelector(selectors.BaseSelector):
    """Never waits for local I/O: if no file is ready, the clock jumps."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._owed_s = 0.0
        self._files = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._files.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._files.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._files.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return self._files.select(None)
        self._owed_s += timeout / SPEED
        if self._owed_s >= _GRACE_S:
            self._owed_s = 0.0
            ready = self._files.select(_GRACE_S)
        if not ready:
            self._clock.passed_s += timeout
        return ready

    def close(self) -> None:
        self._files.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files.get_map()


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: _Clock) -> None:
        super().__init__(_JumpingSelector(clock))

    def time(self) -> float:
        return _monotonic()


@contextmanager
def _patched() -> Iterator[_Clock]:
    """Make all our modules, and those that serve HTTP, read the virtual clock."""
    clock = _Clock()
    _running.append(clock)
    bound = []
    for module in list(sys.modules.values()):
        for name, real, virtual in (("monotonic", _REAL_MONOTONIC, _monotonic), ("time", _REAL_TIME, _time)):
            if module is not None and module.__name__ != __name__ and module.__dict__.get(name) is real:
                bound.append((module, name, real))
                setattr(module, name, virtual)
    try:
        yield clock
    finally:
        _running.remove(clock)
        for module, name, real in bound:
            setattr(module, name, real)


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine to its end under a virtual clock."""
    with _patched() as clock, asyncio.Runner(loop_factory=lambda: _VirtualLoop(clock)) as runner:
        return runner.run(work)
