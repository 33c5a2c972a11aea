"""Waiting for an engine ends when it is lost or stuck, or at limits that no working engine meets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.proxy.progress_guard import AnswerLimits, EngineSilentError, ProgressGuard
from gateway.server.http.http_exchange import ClientGoneError


def _guard(*, lost: bool = False, stuck: bool = False, **limits: float) -> ProgressGuard:
    engine = cast("Any", SimpleNamespace(lost=lost, stuck=stuck))
    known = {"whole_s": 60.0, "lost_s": 0.25}
    return ProgressGuard(engine, AnswerLimits(**{**known, **limits}))


async def test_silence_before_and_after_the_first_sign_has_no_separate_limit() -> None:
    with _guard(start_s=1.0) as guard:
        await asyncio.sleep(0.6)
        guard.progress()
        await asyncio.sleep(1.6)


async def test_the_first_sign_of_bounded_work_has_a_limit() -> None:
    with pytest.raises(EngineSilentError) as struck, _guard(start_s=0.25):
        await asyncio.sleep(10)
    assert not struck.value.late
    assert not cast("Any", asyncio.current_task()).cancelling()


async def test_the_whole_response_has_a_limit_whatever_arrives() -> None:
    with pytest.raises(EngineSilentError) as struck, _guard(whole_s=0.75) as guard:
        while True:
            await asyncio.sleep(0.1)
            guard.progress()
    assert struck.value.late


async def test_time_spent_by_the_client_does_not_count_against_the_engine() -> None:
    with _guard(whole_s=0.5) as guard:
        guard.progress()
        for _ in range(4):
            guard.sending = True
            await asyncio.sleep(0.3)
            guard.sending = False
            guard.progress()


async def test_a_lost_engine_that_still_sends_is_still_read() -> None:
    with _guard(lost=True, lost_s=0.75) as guard:
        for _ in range(8):
            await asyncio.sleep(0.2)
            guard.progress()


async def test_a_lost_engine_gets_little_time() -> None:
    with pytest.raises(EngineSilentError) as struck, _guard(lost=True):
        await asyncio.sleep(10)
    assert not struck.value.late


async def test_on_a_stuck_engine_only_requests_not_yet_started_end() -> None:
    with pytest.raises(EngineSilentError), _guard(stuck=True):
        await asyncio.sleep(10)
    with _guard(stuck=True) as guard:
        guard.progress()
        await asyncio.sleep(0.8)


async def test_a_client_that_does_not_read_is_not_the_engines_fault() -> None:
    with pytest.raises(ClientGoneError), _guard(client_s=0.25) as guard:
        guard.sending = True
        await asyncio.sleep(10)


async def test_an_external_cancellation_passes_through() -> None:
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
