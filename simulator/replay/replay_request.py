"""Sends one replayed request and reads its streamed response, mostly as unparsed bytes for speed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from simulator.replay.replay_options import ReplayOptions
from simulator.replay.replay_summary import ReplayOutcome
from simulator.workloads.prompt_text import prompt_text
from simulator.workloads.trace import TraceRow

# Not an empty text: a chat's first chunk has the role alone.
_FIRST_TEXT = re.compile(rb'"(?:content|text)":\s?"(?!")')
_TAIL_BYTES = 8192
"""Size of the end of a stream that is searched for usage, errors, and [DONE]."""
_REJECTIONS = (429, 503)
_MAX_RETRY_AFTER_S = 30.0


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct, frozen=True):
    usage: _Usage | None = None
    error: Any = None


class _Rejected(msgspec.Struct, frozen=True):
    """The server responded with 429 or 503; the request can be repeated after this many seconds."""

    after_s: float
    outcome: ReplayOutcome


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


async def send_row(
    session: aiohttp.ClientSession, body: bytes, options: ReplayOptions, headers: Mapping[str, str] | None = None
) -> ReplayOutcome:
    """Send the body from request_body, with up to options.retry retries after rejections; return the outcome."""
    for _ in range(options.retry):
        result = await _send_once(session, body, options, headers)
        if isinstance(result, ReplayOutcome):
            return result
        await asyncio.sleep(result.after_s)
    result = await _send_once(session, body, options, headers)
    return result if isinstance(result, ReplayOutcome) else result.outcome


def request_body(row: TraceRow, number: int, options: ReplayOptions, edition: str) -> bytes:
    """Return the JSON body of row `number`: streamed, with exactly output_length tokens and usage at the end."""
    text = prompt_text(row, number, max_tokens=options.max_input, edition=edition)
    body: dict[str, object] = {
        "model": options.model,
        "max_tokens": max(1, row.output_length),
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if row.priority:
        body["priority"] = row.priority
    if row.session_id is not None:
        body["session_id"] = str(row.session_id)
    if options.chat:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    return msgspec.json.encode(body)


async def _send_once(
    session: aiohttp.ClientSession, body: bytes, options: ReplayOptions, headers: Mapping[str, str] | None
) -> ReplayOutcome | _Rejected:
    path = "/v1/chat/completions" if options.chat else "/v1/completions"
    started = time.perf_counter()
    try:
        async with session.post(options.target + path, data=body, headers=headers) as response:
            if response.status in _REJECTIONS:
                # Read to its end, so that the connection can be used again.
                await response.read()
                rejected = ReplayOutcome(status="rejected", error=f"HTTP {response.status}")
                return _Rejected(_retry_after(response.headers), rejected)
            if response.status != 200:
                return ReplayOutcome(status="failed", error=f"HTTP {response.status}: {_reason(await response.read())}")
            return await _read_stream(response, started)
    except TimeoutError:
        return ReplayOutcome(status="failed", error=f"no answer within {options.timeout_s:g} s")
    except aiohttp.ClientError as error:
        return ReplayOutcome(status="failed", error=_describe(error))


async def _read_stream(response: aiohttp.ClientResponse, started: float) -> ReplayOutcome:
    ttft: float | None = None
    tail = b""
    async for piece in response.content.iter_any():
        tail = (tail + piece)[-_TAIL_BYTES:]
        # In the tail, since a piece may end in the middle of the match.
        if ttft is None and _FIRST_TEXT.search(tail):
            ttft = time.perf_counter() - started
    return _outcome(tail, ttft)


def _outcome(tail: bytes, ttft: float | None) -> ReplayOutcome:
    usage = _Usage()
    for line in tail.split(b"\n"):
        if line.startswith(b"data: {") and (b'"usage"' in line or b'"error"' in line):
            chunk = _decode(line[6:])
            if chunk.error is not None:
                return ReplayOutcome(status="failed", ttft_s=ttft, error=f"error in the stream: {_reason(line[6:])}")
            usage = chunk.usage or usage
    if b"data: [DONE]" not in tail:
        return ReplayOutcome(status="failed", ttft_s=ttft, error="the stream ended before [DONE]")
    details = usage.prompt_tokens_details
    return ReplayOutcome(
        status="ok",
        ttft_s=ttft,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=None if details is None else details.cached_tokens,
        output_tokens=usage.completion_tokens,
    )


def _decode(line: bytes) -> _Chunk:
    try:
        return _decode_chunk(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The tail may begin in the middle of a line.
        return _Chunk()


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return min(_MAX_RETRY_AFTER_S, max(0.0, float(headers.get("Retry-After", "1"))))
    except ValueError:
        return 1.0


def _reason(body: bytes) -> str:
    """Return the message from an error body, shortened so that equal errors can be grouped."""
    match = re.search(rb'"message":\s?"([^"]{1,120})', body)
    return (match.group(1) if match else body[:120]).decode(errors="replace")


def _describe(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return "cannot connect"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return "the connection broke"
    return type(error).__name__
