"""One observed request, reported by a mirroring proxy or by a converter of access logs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from xxhash import xxh3_64_intdigest

from gateway.api.route_request import MAX_HASHES, Name, RouteRequest, Tokens, laxly_read, prompt_of, reject_nul_names
from gateway.formats.prompt import Prompt
from gateway.http.json_body import BadBodyError, decode_value_in_turns, typed

MAX_OBSERVATIONS = 1000
"""Lines of one call, blank ones included."""
_TURN_KEYS = 4096
"""Keys that one turn of the event loop makes, in about 2 ms."""

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


class AssumedPrompt(msgspec.Struct, frozen=True):
    """A prompt of known length only: it is assumed to repeat and extend what its session sent before."""

    session: bytes
    """The request's own id where no session is known."""
    blocks: int
    prompt_tokens: int

    async def keys(self, seed: int) -> tuple[int, ...]:
        """Return its block keys, a few thousand of them per turn of the event loop."""
        keys: list[int] = []
        for start in range(0, self.blocks, _TURN_KEYS):
            if start:
                await asyncio.sleep(0)
            numbers = range(start, min(start + _TURN_KEYS, self.blocks))
            keys += [xxh3_64_intdigest(number.to_bytes(4, "little") + self.session, seed) for number in numbers]
        return tuple(keys)


class LineProblem(msgspec.Struct, frozen=True):
    """The reason why one line was not taken; lines count from 1."""

    line: int
    message: str


class ObserveAnswer(msgspec.Struct, frozen=True):
    """Number of observations taken, and the first few that were not."""

    accepted: int
    rejected: int
    problems: list[LineProblem]
    resend_from: int | msgspec.UnsetType = msgspec.UNSET
    """The first line that was not read, because a limit was reached: after Retry-After, send it and those behind it."""


def numbered_lines(body: bytes) -> list[tuple[int, bytes]]:
    """Return the lines that are not blank with their numbers; raises BadBodyError for too many, or none."""
    # Counted before the split, which would make an object of every line.
    if body.count(b"\n", 0, len(body) - 1) >= MAX_OBSERVATIONS:
        raise BadBodyError("too_complex", f"The body has more than {MAX_OBSERVATIONS} lines; send fewer at once.")
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise BadBodyError("empty_body", "The body is empty; send one observation per line.")
    return lines


async def read_observation(line: bytes) -> Observation:
    """Return the observation in a line; raises BadBodyError."""
    value = await decode_value_in_turns(line)
    if not isinstance(value, dict):
        raise BadBodyError("not_an_object", "Each line must be a JSON object.")
    if isinstance(request := value.get("request"), dict):
        value["request"] = laxly_read(request)
    observed = typed(value, Observation)
    reject_nul_names(observed.request)
    return observed


def observed_prompt(observed: Observation, block_tokens: int, name: str) -> Prompt | AssumedPrompt:
    """Return the prompt to make keys of; `name` identifies the session where none is known.

    Raises BadBodyError where the prompt is given in two ways, or without even its length.
    """
    asked = observed.request
    given = (asked.messages, asked.prompt, asked.prompt_embeds, asked.token_ids, asked.block_hashes)
    if any(item is not None for item in given):
        return prompt_of(asked)
    if asked.prompt_tokens is None:
        raise BadBodyError("bad_field", "Send the prompt, or at least request.prompt_tokens.", param="request")
    blocks = min(asked.prompt_tokens // block_tokens, MAX_HASHES)
    return AssumedPrompt((asked.session_id or name).encode(), blocks, asked.prompt_tokens)
