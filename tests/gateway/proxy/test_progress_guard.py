"""Waiting for a silent engine ends: in time, at once when it is lost, and never because of the client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.http.http_exchange import ClientGoneError
from gateway.proxy.progress_guard import EngineSilentError, ProgressGuard


def _guard(*, lost: bool = False, stuck: bool = False, first_s: float = 60.0, idle_s: float = 60.0) -> ProgressGuard:
    engine = cast("Any", SimpleNamespace(lost=lost, stuck=stuck))
    return ProgressGuard(engine, first_s=first_s, idle_s=idle_s, lost_s=0.25)


async def test_the_first_sign_has_a_limit() -> None:
    with pytest.raises(EngineSilentError), _guard(first_s=0.25):
        await asyncio.sleep(10)
    assert not cast("Any", asyncio.current_task()).cancelling()


async def test_progress_starts_the_clock_again() -> None:
    with _guard(first_s=0.5, idle_s=0.5) as guard:
        for _ in range(4):
            await asyncio.sleep(0.2)
            guard.progress()


async def test_silence_after_the_first_sign_has_another_limit() -> None:
    with pytest.raises(EngineSilentError), _guard(idle_s=0.25) as guard:
        guard.progress()
        await asyncio.sleep(10)


async def test_a_lost_engine_gets_little_time() -> None:
    with pytest.raises(EngineSilentError), _guard(lost=True):
        await asyncio.sleep(10)


async def test_of_an_engine_that_is_stuck_only_what_it_has_not_begun_ends() -> None:
    with pytest.raises(EngineSilentError), _guard(stuck=True):
        await asyncio.sleep(10)
    with _guard(stuck=True) as guard:
        guard.progress()
        await asyncio.sleep(0.8)


async def test_a_client_that_takes_nothing_is_not_the_engines_fault() -> None:
    with pytest.raises(ClientGoneError), _guard(first_s=0.25) as guard:
        guard.sending = True
        await asyncio.sleep(10)


async def test_a_cancellation_from_outside_passes_through() -> None:
    async def guarded() -> None:
        with _guard():
            await asyncio.sleep(10)

    task = asyncio.create_task(guarded())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_other_errors_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), _guard():
        raise ZeroDivisionError
