"""One observed request, reported by a mirroring proxy or an access log converter."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from xxhash import xxh3_64_intdigest

from gateway.api.route_request import MAX_HASHES, Name, RouteRequest, Tokens, laxly_read, prompt_of, reject_nul_names
from gateway.requests.formats.prompt import Prompt
from gateway.server.http.json_body import BadBodyError, decode_value_in_turns, typed

MAX_OBSERVATIONS = 1000
"""Limit of lines per call, blank lines included."""
_TURN_KEYS = 4096
"""Keys that one event loop step computes, in about 2 ms."""

Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class Observation(msgspec.Struct, kw_only=True):
    """A request that has ended, with the engine that served it.

    `request` describes the prompt as for `/api/v1/route`. A log without prompts gives `prompt_tokens`, and `session_id`
    if known: each request of a session is then assumed to repeat the preceding ones.
    """

    request: RouteRequest
    engine: Name
    """The engine's id, name or address (host:port or URL; for a data-parallel rank host:port#rank)."""
    started_at: Annotated[float, Meta(ge=0, le=1e11)]
    """Unix seconds when the proxy sent the request."""
    total_s: Seconds
    ttft_s: Seconds | None = None
    """Seconds to the first token. Omit it if only headers were timed."""
    cached_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    outcome: Literal["completed", "failed", "cancelled", "client_error"] = "completed"


class AssumedPrompt(msgspec.Struct, frozen=True):
    """A prompt of which only the length is known. It is assumed to repeat and extend its session's previous prompt."""

    session: bytes
    """The session, or the request's own id if no session is known."""
    blocks: int
    prompt_tokens: int

    async def keys(self, seed: int) -> tuple[int, ...]:
        """Return the block keys. Each event loop step computes a few thousand of them."""
        keys: list[int] = []
        for start in range(0, self.blocks, _TURN_KEYS):
            if start:
                await asyncio.sleep(0)
            numbers = range(start, min(start + _TURN_KEYS, self.blocks))
            keys += [xxh3_64_intdigest(number.to_bytes(4, "little") + self.session, seed) for number in numbers]
        return tuple(keys)


class LineProblem(msgspec.Struct, frozen=True):
    """Why one line was not accepted. Lines count from 1."""

    line: int
    message: str


class ObserveAnswer(msgspec.Struct, frozen=True):
    """The number of accepted observations, and the first few problems."""

    accepted: int
    rejected: int
    problems: list[LineProblem]
    resend_from: int | msgspec.UnsetType = msgspec.UNSET
    """The first line that was not read because of a limit. After Retry-After, send it and the following lines again."""


def numbered_lines(body: bytes) -> list[tuple[int, bytes]]:
    """Return (number, line) of the lines that are not blank; raise BadBodyError if there are none or too many."""
    # Counted before the split, which would make an object of every line.
    if body.count(b"\n", 0, len(body) - 1) >= MAX_OBSERVATIONS:
        raise BadBodyError("too_complex", f"The body has more than {MAX_OBSERVATIONS} lines; send fewer at once.")
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    if not lines:
        raise BadBodyError("empty_body", "The body is empty; send one observation per line.")
    return lines


async def read_observation(line: bytes) -> Observation:
    """Return the observation in a line; raise BadBodyError."""
    value = await decode_value_in_turns(line)
    if not isinstance(value, dict):
        raise BadBodyError("not_an_object", "Each line must be a JSON object.")
    if isinstance(request := value.get("request"), dict):
        value["request"] = laxly_read(request)
    observed = typed(value, Observation)
    reject_nul_names(observed.request)
    return observed


def observed_prompt(observed: Observation, block_tokens: int, name: str) -> Prompt | AssumedPrompt:
    """Return the prompt to compute keys from. `name` identifies the session if the request names none.

    Raise BadBodyError if the prompt is given twice or lacks even its length.
    """
    asked = observed.request
    given = (asked.messages, asked.prompt, asked.prompt_embeds, asked.token_ids, asked.block_hashes)
    if any(item is not None for item in given):
        return prompt_of(asked)
    if asked.prompt_tokens is None:
        raise BadBodyError("bad_field", "Send the prompt, or at least request.prompt_tokens.", param="request")
    blocks = min(asked.prompt_tokens // block_tokens, MAX_HASHES)
    return AssumedPrompt((asked.session_id or name).encode(), blocks, asked.prompt_tokens)
