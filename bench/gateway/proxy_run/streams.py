"""Streamed chats, several at a time, read to the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence

import aiohttp

from bench.gateway.proxy_run.instant_engine import MODEL

AT_ONCE = 8
_DONE = b"data: [DONE]"


def bodies(count: int) -> list[bytes]:
    """Return bodies of about 2 KB. Each shares its first half with every sixteenth other one."""
    halves = [f"{number % 16:04d} is the opening of sixteen. " * 32 for number in range(count)]
    message = [
        {"role": "user", "content": half + f"{number:06d} is nobody else's. " * 40}
        for number, half in enumerate(halves)
    ]
    return [
        json.dumps({"model": MODEL, "messages": [item], "max_tokens": 64, "stream": True}).encode() for item in message
    ]


async def stream_all(url: str, asked: Sequence[bytes], headers: Mapping[str, str]) -> None:
    """Send all bodies, AT_ONCE at a time. Raises RuntimeError for an answer that is not a complete stream."""
    left = iter(asked)
    async with aiohttp.ClientSession(headers={"content-type": "application/json", **headers}) as session:
        await asyncio.gather(*(_stream_from(session, url, left) for _ in range(AT_ONCE)))


async def _stream_from(session: aiohttp.ClientSession, url: str, left: Iterator[bytes]) -> None:
    for body in left:
        async with session.post(url, data=body) as response:
            answer = await response.read()
        if response.status != 200 or _DONE not in answer[-64:]:
            raise RuntimeError(f"{url} answered {response.status}: {answer[-200:]!r}")
