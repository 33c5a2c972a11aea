"""Values in lines of logs, and names of prompt blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from gateway.contracts.traffic_row import trace_blocks
from kvstore.keys.block_keys import TOKEN_BYTES, byte_block_keys, token_block_keys
from planning.router_audit.logged_request import BLOCK_TOKENS, UnusableLineError

_SEED = 0
"""Names of blocks stay within one audit, so they need no secret."""
_MOST = 1e20
_LATEST_S = 1e11


def json_object(line: bytes) -> dict[str, Any]:
    """Return the line's JSON object; raise UnusableLineError."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableLineError("not a JSON object; choose the --format of this file") from error


def inner(fields: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """Return the object at a path, an empty one if there is none."""
    value: Any = fields
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def number(value: object, most: float = _MOST) -> float | None:
    """Return a value in 0..most, given as number or text; None if it is missing, "-", or another one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        parsed = float(value)
    except ValueError:
        return None
    # NaN and infinity fail here as well.
    return parsed if 0 <= parsed < most else None


def whole(value: object) -> int | None:
    """Return the value as a whole number, None as `number`."""
    parsed = number(value)
    return None if parsed is None else int(parsed)


def milliseconds(value: object) -> float | None:
    """Return a value in milliseconds as seconds, None as `number`."""
    parsed = number(value)
    return None if parsed is None else parsed / 1000


def unix_s(value: object) -> float:
    """Return a time, given in Unix seconds or as ISO 8601 (UTC if it names no zone); raise UnusableLineError."""
    parsed = number(value, _LATEST_S)
    if parsed is not None:
        return parsed
    try:
        moment = datetime.fromisoformat(str(value).strip().replace(",", "."))
    except ValueError as error:
        raise UnusableLineError("no time in Unix seconds or ISO 8601") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def address(value: object) -> str:
    """Return an engine's host and port without scheme and path, or its name unchanged."""
    text = str(value or "").strip()
    return "" if text == "-" else text.rpartition("://")[2].partition("/")[0].lower()


def token_blocks(tokens: Sequence[int]) -> tuple[int, ...]:
    """Return one name per full block of token ids."""
    try:
        return token_block_keys(_SEED, tokens, BLOCK_TOKENS)
    except (OverflowError, TypeError) as error:
        raise UnusableLineError("token ids are no 32-bit numbers") from error


def hash_blocks(hashes: object, block_tokens: int | None, prompt_tokens: int | None) -> tuple[int, ...]:
    """Return one name per BLOCK_TOKENS tokens from chained hashes of blocks; none of a missing list."""
    if not hashes or not isinstance(hashes, list):
        return ()
    if not all(isinstance(value, int) and -(2**63) <= value < 2**64 for value in hashes):
        raise UnusableLineError("block hashes are no numbers of 64 bits")
    size = block_tokens or BLOCK_TOKENS
    return trace_blocks(hashes, prompt_tokens or len(hashes) * size, size)


def prompt_blocks(text: str) -> tuple[tuple[int, ...], int]:
    """Return one name per full block of a prompt, and its tokens, of four bytes each. The text is not kept."""
    data = text.encode(errors="replace")
    return byte_block_keys(_SEED, data, BLOCK_TOKENS * TOKEN_BYTES), max(1, -(-len(data) // TOKEN_BYTES))


def chat_blocks(messages: Sequence[object]) -> tuple[tuple[int, ...], int]:
    """Return the same for messages, which share the blocks of the messages that they begin with."""
    return prompt_blocks("".join(msgspec.json.encode(message).decode() for message in messages))


def session_blocks(session: str, prompt_tokens: int) -> tuple[int, ...]:
    """Return the names of a prompt that repeats and extends the previous one of its session."""
    name = session.encode()
    return tuple(
        xxh3_64_intdigest(index.to_bytes(4, "little") + name, _SEED) for index in range(prompt_tokens // BLOCK_TOKENS)
    )
