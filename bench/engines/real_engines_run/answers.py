"""Send a schedule of streamed chats at fixed times, regardless of answers, and time the tokens."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

PATIENCE_S = 300.0
"""Time after which an unfinished answer is abandoned."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of one request. `ttft_s` is infinite if no token arrived; `tpot_s` is the mean gap between tokens."""

    ttft_s: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tpot_s: float = 0.0


class RunFigures(msgspec.Struct, frozen=True):
    """The figures of one run of one router: seconds, and shares of all requests or prompt tokens."""

    ttft_p50_s: float
    ttft_p90_s: float
    tpot_p50_s: float
    tpot_p90_s: float
    cached_share: float
    on_time_share: float
    failed: int
    prompt_tokens: int


def figures(answers: Sequence[Answered], objective_s: float, tpot_objective_s: float) -> RunFigures:
    """Return the figures of these answers. A request without an answer is late, and its time counts as infinite."""
    times = sorted(answer.ttft_s for answer in answers)
    gaps = sorted(answer.tpot_s for answer in answers)
    on_time = [answer.ttft_s <= objective_s and answer.tpot_s <= tpot_objective_s for answer in answers]
    prompt_tokens = sum(answer.prompt_tokens for answer in answers)
    return RunFigures(
        statistics.median(times),
        times[min(len(times) - 1, int(0.9 * len(times)))],
        statistics.median(gaps),
        gaps[min(len(gaps) - 1, int(0.9 * len(gaps)))],
        sum(answer.cached_tokens for answer in answers) / max(prompt_tokens, 1),
        sum(on_time) / len(answers),
        sum(answer.prompt_tokens == 0 for answer in answers),
        prompt_tokens,
    )


async def answers_of(
    urls: Sequence[str], schedule: Sequence[tuple[float, bytes]], headers: dict[str, str]
) -> list[Answered]:
    """Send each body at its time, to `urls` in turn, and return the outcomes."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    # No limit of connections: a full pool would delay requests past their time.
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=headers) as session:
        began = time.monotonic()

        async def send(number: int, at_s: float, body: bytes) -> Answered:
            await asyncio.sleep(max(began + at_s - time.monotonic(), 0.0))
            return await _answer(session, urls[number % len(urls)], body)

        return await asyncio.gather(*(send(number, *entry) for number, entry in enumerate(schedule)))


async def _answer(session: aiohttp.ClientSession, url: str, body: bytes) -> Answered:
    began, first, last, usage = time.monotonic(), float("inf"), 0.0, dict[str, object]()
    sent = {"content-type": "application/json"}
    try:
        async with session.post(f"{url}/v1/chat/completions", data=body, headers=sent) as response:
            if response.status != 200:
                print(f"{url} answered {response.status}: {(await response.read())[:200]!r}", flush=True)
                return Answered(float("inf"))
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                if line.startswith(b'data: {"error"'):
                    print(f"{url} broke off: {line[:200]!r}", flush=True)
                first = min(first, time.monotonic() - began)
                if b'"usage":{' in line.replace(b'"usage": {', b'"usage":{'):
                    usage = json.loads(line[6:])["usage"]
                else:
                    last = time.monotonic() - began
    except (aiohttp.ClientError, TimeoutError):
        return Answered(float("inf"))
    if not usage:
        return Answered(float("inf"))
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    prompt, answer = (_count(usage[name]) for name in ("prompt_tokens", "completion_tokens"))
    return Answered(first, prompt, _count(cached), max(last - first, 0.0) / max(answer - 1, 1))


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
