"""One observed request, reported by a mirroring proxy or by a converter of access logs."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.api.route_request import MAX_HASHES, Name, RouteRequest, Tokens, prompt_of, reject_nul_names
from gateway.formats.prompt import HashedPrompt, Prompt
from gateway.http.json_body import BadBodyError, decode_value_in_turns, typed
from gateway.http.openai_error import ApiError

MAX_OBSERVATIONS = 1000
"""Lines of one call."""
LINES_OF_TURN = 50

Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class Observation(msgspec.Struct, kw_only=True):
    """One request that is over, with the engine that served it.

    `request` describes the prompt as for `/api/v1/route`; a log that has no prompt gives `prompt_tokens`, and
    `session_id` where one is known: requests of one session are then taken to repeat what went before.
    """

    request: RouteRequest
    engine: Name
    """Its id, its name or its address (host:port or URL, of a data-parallel rank host:port#rank)."""
    started_at: Annotated[float, Meta(ge=0, le=1e11)]
    """Unix seconds at which the proxy sent it."""
    total_s: Seconds
    ttft_s: Seconds | None = None
    """To the first token; leave it out where only headers were timed."""
    cached_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    outcome: Literal["completed", "failed", "cancelled", "client_error"] = "completed"


class LineProblem(msgspec.Struct, frozen=True):
    """Why one line was not taken; lines count from 1."""

    line: int
    message: str


class ObserveAnswer(msgspec.Struct, frozen=True):
    """How many observations were taken, and the first few that were not."""

    accepted: int
    refused: int
    problems: list[LineProblem]


async def read_observations(body: bytes) -> list[Observation | LineProblem]:
    """Return what each line says: one JSON object per line, or a single object. Raises BadBodyError for too many."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if not lines:
        raise BadBodyError("empty_body", "The body is empty; send one observation per line.")
    if len(lines) > MAX_OBSERVATIONS:
        raise BadBodyError("too_complex", f"The body has more than {MAX_OBSERVATIONS} lines; send fewer at once.")
    read: list[Observation | LineProblem] = []
    for number, line in enumerate(lines, 1):
        read.append(await _read_line(number, line))
        if number % LINES_OF_TURN == 0:
            await asyncio.sleep(0)
    return read


def observed_prompt(observed: Observation, block_tokens: int, name: str) -> Prompt:
    """Return the prompt to make keys of; `name` stands for a session where none is known.

    Raises BadBodyError where the prompt is told in two ways, or its length is not told at all.
    """
    asked = observed.request
    told = (asked.messages, asked.prompt, asked.token_ids, asked.block_hashes)
    if any(each is not None for each in told):
        return prompt_of(asked)
    if asked.prompt_tokens is None:
        raise BadBodyError("bad_field", "Send the prompt, or at least request.prompt_tokens.", param="request")
    blocks = min(asked.prompt_tokens // block_tokens, MAX_HASHES)
    session = (asked.session_id or name).encode()
    hashes = [
        int.from_bytes(blake2b(number.to_bytes(4, "little") + session, digest_size=8).digest(), "little")
        for number in range(blocks)
    ]
    return HashedPrompt(hashes, asked.prompt_tokens)


async def _read_line(number: int, line: bytes) -> Observation | LineProblem:
    try:
        value = await decode_value_in_turns(line)
        if not isinstance(value, dict):
            return LineProblem(number, "Each line must be a JSON object.")
        observed = typed(value, Observation)
        reject_nul_names(observed.request)
        return observed
    except ApiError as error:
        return LineProblem(number, error.message)
