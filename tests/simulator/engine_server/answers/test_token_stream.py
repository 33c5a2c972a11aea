from __future__ import annotations

import asyncio

from simulator.engine_server.answers.token_stream import TokenStream


async def test_the_first_token_is_forwarded_immediately() -> None:
    stream = TokenStream("a", 8)
    reader = asyncio.create_task(stream.burst())
    await asyncio.sleep(0)
    stream.add_token()
    assert await reader == (0, 1)


async def test_later_tokens_arrive_in_bursts_of_the_interval() -> None:
    stream = TokenStream("a", 3)
    stream.add_token()
    assert await stream.burst() == (0, 1)
    reader = asyncio.create_task(stream.burst())
    for _ in range(2):
        stream.add_token()
        await asyncio.sleep(0)
    assert not reader.done()
    stream.add_token()
    assert await reader == (1, 4)


async def test_the_end_returns_the_remaining_tokens_and_then_nothing() -> None:
    stream = TokenStream("a", 5)
    for _ in range(3):
        stream.add_token()
    stream.finish()
    assert await stream.burst() == (0, 3)
    assert await stream.burst() is None


async def test_a_broken_stream_ends_without_its_remaining_tokens() -> None:
    stream = TokenStream("a", 1)
    reader = asyncio.create_task(stream.burst())
    await asyncio.sleep(0)
    stream.break_off()
    assert await reader is None
    stream.add_token()
    assert await stream.burst() is None


async def test_a_cancelled_reader_does_not_stop_the_engine() -> None:
    stream = TokenStream("a", 1)
    reader = asyncio.create_task(stream.burst())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    stream.add_token()
    assert await stream.burst() == (0, 1)
