"""A client that sends a trace at fixed times, and its CSV for `audit-router`, which has no prompts."""

from __future__ import annotations

import asyncio
import csv
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from simulator.replay.replay_options import ReplayOptions
from simulator.replay.replay_request import request_body
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

_COLUMNS = ("request_id", "time", "engine", "prompt_tokens", "output_tokens", "cached_tokens", "ttft", "total",
            "block_hashes", "block_tokens")  # fmt: skip


class ClientRecord(msgspec.Struct, frozen=True):
    """What the client knows about one answered request."""

    request_id: str
    answered_by: str
    """The model's name in the answer."""
    late_s: float
    """Seconds by which it was sent after its time."""
    sent_s: float
    """Unix time."""
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    ttft_s: float
    total_s: float


async def records_of(rows: Sequence[TraceRow], options: ReplayOptions) -> list[ClientRecord]:
    """Send each row at its time, whatever the state of others, and return the records in order of the rows.

    Raises RuntimeError for an answer that is not a complete stream.
    """
    headers = {"content-type": "application/json", "authorization": f"Bearer {options.api_key}"}
    # Before the first is due, since making a text takes time that belongs to no request.
    bodies = [request_body(row, number, options, "") for number, row in enumerate(rows)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
        began = time.monotonic() + 0.5

        async def send(number: int) -> ClientRecord:
            due_s = began + (rows[number].timestamp - rows[0].timestamp) / 1000
            await asyncio.sleep(due_s - time.monotonic())
            return await _record(session, options.target, f"request-{number}", bodies[number], time.monotonic() - due_s)

        return await asyncio.gather(*map(send, range(len(rows))))


async def _record(session: aiohttp.ClientSession, url: str, name: str, body: bytes, late_s: float) -> ClientRecord:
    sent_s, began, ttft_s, last = time.time(), time.monotonic(), 0.0, b""
    async with session.post(f"{url}/v1/chat/completions", data=body, headers={"x-request-id": name}) as response:
        async for line in response.content:
            # The first chunk of a chat has the role alone.
            if not ttft_s and b'"content":"' in line and b'"content":""' not in line:
                ttft_s = time.monotonic() - began
            if line.startswith(b"data: {") or response.status != 200:
                last = line
    usage = json.loads(last[6:]).get("usage") if last.startswith(b"data: {") else None
    if response.status != 200 or not usage:
        raise RuntimeError(f"{url} answered {name} with {response.status} and no complete stream: {last[:200]!r}")
    return ClientRecord(
        request_id=name,
        sent_s=sent_s,
        late_s=late_s,
        answered_by=json.loads(last[6:])["model"],
        prompt_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        ttft_s=ttft_s,
        total_s=time.monotonic() - began,
    )


def write_csv(path: Path, rows: Iterable[TraceRow], records: Iterable[ClientRecord], *, engines: bool) -> Path:
    """Write the records and the hashes of their prompts' blocks; with `engines`, also which engine answered."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for row, one in zip(rows, records, strict=True):
            known = (one.request_id, one.sent_s, one.answered_by if engines else "")
            used = (one.prompt_tokens, one.output_tokens, one.cached_tokens, one.ttft_s, one.total_s)
            writer.writerow((*known, *used, " ".join(map(str, row.hash_ids)), BLOCK_TOKENS))
    return path
