"""Costly things that consecutive tests share: each ends before the first test that does not use it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

import pytest

Thing = TypeVar("Thing")


class Kept(Generic[Thing]):
    """One thing of this process. Mutable: the running thing, and the stack that ends it."""

    def __init__(self, uses: Callable[[pytest.Item], bool]) -> None:
        self._uses = uses
        self._running: Thing | None = None
        self._stack = ExitStack()

    def get(self, start: Callable[[], AbstractContextManager[Thing]]) -> Thing:
        """Return the running thing, started if there is none."""
        if self._running is None:
            self._running = self._stack.enter_context(start())
        return self._running

    def end_before(self, next_item: pytest.Item | None) -> None:
        """End the thing unless the next test uses it."""
        if next_item is None or not self._uses(next_item):
            self._running = None
            self._stack.close()
