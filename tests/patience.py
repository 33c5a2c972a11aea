"""Timeouts for waits without a promised bound, long enough that no test fails on a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 180.0
_STEP_S = 0.01


async def until(holds: Callable[[], Any]) -> None:
    """Return once the condition holds; raise TimeoutError after PATIENCE_S."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(_STEP_S)


def wait_until(holds: Callable[[], Any], what: str = "it did not come about") -> None:
    """Return once the condition holds; raise AssertionError with `what` after PATIENCE_S."""
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_at, what
        time.sleep(_STEP_S)
