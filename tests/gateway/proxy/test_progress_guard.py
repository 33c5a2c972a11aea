"""Waiting for an engine ends when it is lost or stuck, or by limits that none at work meets; never for the client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.http.http_exchange import ClientGoneError
from gateway.proxy.progress_guard import AnswerLimits, EngineSilentError, ProgressGuard


def _guard(*, lost: bool = False, stuck: bool = False, **limits: float) -> ProgressGuard:
    engine = cast("Any", SimpleNamespace(lost=lost, stuck=stuck))
    known = {"whole_s": 60.0, "lost_s": 0.25}
    return ProgressGuard(engine, AnswerLimits(**{**known, **limits}))


async def test_silence_before_and_after_the_first_sign_has_no_limit_of_its_own() -> None:
    with _guard(start_s=1.0) as guard:
        await asyncio.sleep(0.6)
        guard.progress()
        await asyncio.sleep(1.6)


async def test_the_first_sign_of_bounded_work_has_a_limit() -> None:
    with pytest.raises(EngineSilentError) as struck, _guard(start_s=0.25):
        await asyncio.sleep(10)
    assert not struck.value.late
    assert not cast("Any", asyncio.current_task()).cancelling()


async def test_the_whole_answer_has_a_limit_whatever_comes_of_it() -> None:
    with pytest.raises(EngineSilentError) as struck, _guard(whole_s=0.75) as guard:
        while True:
            await asyncio.sleep(0.1)
            guard.progress()
    assert struck.value.late


async def test_the_time_that_the_client_takes_is_not_the_engines() -> None:
    with _guard(whole_s=0.5) as guard:
        guard.progress()
        for _ in range(4):
            guard.sending = True
            await asyncio.sleep(0.3)
            guard.sending = False
            guard.progress()


async def test_a_lost_engine_that_still_sends_is_listened_to() -> None:
    with _guard(lost=True, lost_s=0.75) as guard:
        for _ in range(8):
            await asyncio.sleep(0.2)
            guard.progress()


async def test_a_lost_engine_gets_little_time() -> None:
    with pytest.raises(EngineSilentError) as struck, _guard(lost=True):
        await asyncio.sleep(10)
    assert not struck.value.late


async def test_of_an_engine_that_is_stuck_only_what_it_has_not_begun_ends() -> None:
    with pytest.raises(EngineSilentError), _guard(stuck=True):
        await asyncio.sleep(10)
    with _guard(stuck=True) as guard:
        guard.progress()
        await asyncio.sleep(0.8)


async def test_a_client_that_takes_nothing_is_not_the_engines_fault() -> None:
    with pytest.raises(ClientGoneError), _guard(client_s=0.25) as guard:
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
