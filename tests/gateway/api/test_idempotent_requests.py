"""Idempotent requests: one name gets one response, and failures leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from gateway.api.idempotent_requests import RepeatedRequests


class Maker:
    """Create a new number per call after a pause."""

    def __init__(self) -> None:
        self.made = 0
        self.fails = 0

    async def __call__(self) -> int:
        await asyncio.sleep(0.01)
        self.made += 1
        if self.made <= self.fails:
            raise ValueError
        return self.made


async def test_a_name_is_created_once_for_many_concurrent_callers() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests()
    make = Maker()
    assert await asyncio.gather(*(repeated.once(("key", "name"), make) for _ in range(5))) == [1] * 5
    assert await repeated.once(("key", "name"), make) == 1
    assert await repeated.once(("other key", "name"), make) == 2


async def test_a_failure_reaches_only_its_caller_and_the_next_retries() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests()
    make = Maker()
    make.fails = 1
    results = await asyncio.gather(*(repeated.once(("k", "n"), make) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, int, int]
    assert len(repeated) == 1


async def test_a_cancelled_maker_hands_over_to_a_waiting_caller() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests()
    make = Maker()
    first = asyncio.create_task(repeated.once(("k", "n"), make))
    second = asyncio.create_task(repeated.once(("k", "n"), make))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_the_table_is_bounded_by_its_capacity() -> None:
    repeated: RepeatedRequests[int] = RepeatedRequests(capacity=2)
    make = Maker()
    for name in "abc":
        await repeated.once(("k", name), make)
    assert len(repeated) == 2
    assert await repeated.once(("k", "c"), make) == 3
    assert await repeated.once(("k", "a"), make) == 4
