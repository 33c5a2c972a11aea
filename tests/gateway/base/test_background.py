"""Background tasks restart after an unexpected error and end when cancelled."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.base import background
from tests.patience import until


async def test_a_failed_task_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_RESTART_S", 0.01)
    runs: list[int] = []

    async def fragile() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("a surprise")
        await asyncio.sleep(60)

    with caplog.at_level(logging.ERROR):
        task = background.start("fragile", fragile)
        await until(lambda: len(runs) == 2)
    assert "fragile failed" in caplog.text
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
