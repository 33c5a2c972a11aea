"""Reads a JSON request body within limits. Every fault in it becomes a 4xx with a counted cause.

msgspec decodes it twice: first untyped, which checks every byte (numbers, escapes, UTF-8, nesting) of known and unknown
fields, then into the typed struct, which gives the path of a wrong field. Messages name the fault and its position,
never the value, which may be a prompt.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from gateway.server.http.large_body import SMALL_BYTES, HeldBody, TooManyPartsError, surveyed, surveyed_at_once
from gateway.server.http.openai_error import ApiError
from routing.values.prepared_struct import prepared

MAX_DEPTH = 64
MAX_CONTAINERS = 50_000
MAX_FIELDS = 256
MAX_FIELD_NAME = 256

_decode = msgspec.json.Decoder().decode
_NOT_A_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_POSITION = re.compile(r"\(byte (\d+)\)")
_NEAR_BYTES = 64 * 1024
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_FLAGS = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}
_WHOLE = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*")
_MOST_DIGITS = 64
"""Limit of digits: no field that the gateway reads has a longer number."""

T = TypeVar("T")


class BadBodyError(ApiError):
    """The body is unusable. `cause` is the label under which it is counted."""

    def __init__(self, cause: str, message: str, *, param: str | None = None) -> None:
        super().__init__(400, message, cause, param=param)
        self.cause = cause


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body` (the last duplicate key wins); raise BadBodyError."""
    return _object(decode_value(body))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadBodyError("not_an_object", "The body must be a JSON object.")
    _check_fields(value)
    return value


async def decode_object_in_turns(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a `body` that can be large, without blocking the event loop for long.

    A long list of token ids is returned as an array.
    """
    return (await read_object_in_turns(body))[0]


async def read_object_in_turns(body: bytes) -> tuple[dict[str, Any], HeldBody | None]:
    """Return the JSON object as `decode_object_in_turns` does, with its media held apart: the object has their names
    instead.
    """
    value, held = await _read_in_turns(body, takes_lists=True)
    return _object(value), held


async def decode_value_in_turns(body: bytes) -> Any:
    """Return the JSON value in a `body` that can be large, without blocking the event loop for long."""
    return (await _read_in_turns(body))[0]


async def _read_in_turns(body: bytes, *, takes_lists: bool = False) -> tuple[Any, HeldBody | None]:
    if len(body) <= SMALL_BYTES:
        return decode_value(body), None
    with _parts_counted():
        survey = await surveyed(body, takes_lists=takes_lists)
    _check_brackets(survey.outside)
    value = _decoded(survey.rest)
    await asyncio.sleep(0)
    if not survey.fill(value):
        return await _read_in_turns(body)
    return value, survey.held


@contextmanager
def _parts_counted() -> Iterator[None]:
    try:
        yield
    except TooManyPartsError as error:
        raise BadBodyError("too_complex", f"{error}; send fewer, or the prompt as one string.") from None
    except UnicodeDecodeError:
        raise _not_utf8() from None


def _not_utf8(where: str = "") -> BadBodyError:
    return BadBodyError("bad_utf8", f"The body is not UTF-8{where}.")


def decode_value(body: bytes) -> Any:
    """Return the JSON value in `body`; raise BadBodyError."""
    if not body:
        raise BadBodyError("empty_body", "The body is empty; send a JSON object.")
    _check_nesting(body)
    return _decoded(body)


def _decoded(body: bytes) -> Any:
    try:
        return _decode(body)
    except UnicodeDecodeError as error:
        raise _not_utf8(f" (byte {error.start})") from None
    except RecursionError:
        raise BadBodyError("too_deep", _TOO_DEEP) from None
    except msgspec.ValidationError:
        # Untyped decoding validates nothing but the range of numbers.
        raise BadBodyError("bad_number", "A number in the body is out of range.") from None
    except msgspec.DecodeError as error:
        raise _malformed(body, error) from None


def reject_nul(body: bytes) -> None:
    """Raise BadBodyError if a string of this JSON contains a NUL, which databases reject."""
    # After an escaped backslash, it is text and not an escape.
    if b"\\u0000" in body and b"\\u0000" in body.replace(b"\\\\", b""):
        raise BadBodyError("nul_character", "Strings must not contain NUL (\\u0000); remove it.")


def reject_nul_name(value: object, param: str) -> None:
    """Raise BadBodyError if a name contains a NUL. Prompts can contain it."""
    if isinstance(value, str) and "\0" in value:
        raise BadBodyError("nul_character", f"A name must not contain NUL (field {param}); remove it.", param=param)


def typed(value: dict[str, Any], kind: Callable[..., T]) -> T:
    """Return `value` as the msgspec struct `kind`; raise BadBodyError that names the wrong field."""
    try:
        return msgspec.convert(value, prepared(kind))  # type: ignore[no-any-return]  # a struct class is its own type
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        param = path.strip("`").removeprefix("$.") or None
        raise BadBodyError("bad_field", f"{message} (field {param or 'of the body'}).", param=param) from None


def lax_flag(value: object) -> bool | None:
    """Return the boolean that engines read in `value`, None if they reject it (pydantic's lax mode)."""
    if isinstance(value, str):
        return _FLAGS.get(value.lower())
    return value == 1 if isinstance(value, int | float) and value in (0, 1) else None


def lax_int(value: object) -> int | None:
    """Return the integer that engines read in `value`, None if they reject it (pydantic's lax mode)."""
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value) if len(value) <= _MOST_DIGITS else None
        return int(whole[1]) if whole else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, int) else None


_TOO_DEEP = f"The body is nested too deeply; at most {MAX_DEPTH} levels are allowed."


def _check_nesting(body: bytes) -> None:
    if len(body) > SMALL_BYTES:
        with _parts_counted():
            outside = surveyed_at_once(body).outside
        _check_brackets(outside)
        return
    # Few brackets cannot nest deeply, so that ordinary bodies cost two memory scans and no parsing.
    if _opens_more_than(MAX_DEPTH, body):
        _check_brackets(_outside_strings(body))


def _opens_more_than(most: int, body: bytes) -> bool:
    """Return whether `body` opens more than `most` brackets. A search skips text ten times as fast as bytes.count."""
    for bracket in (b"[", b"{"):
        position = body.find(bracket)
        while position >= 0:
            most -= 1
            if most < 0:
                return True
            position = body.find(bracket, position + 1)
    return False


def _check_brackets(outside: bytes) -> None:
    brackets = outside.translate(None, _NOT_A_BRACKET)
    if len(brackets) > 2 * MAX_CONTAINERS:
        raise BadBodyError(
            "too_complex", f"The body contains more than {MAX_CONTAINERS} objects and lists; send fewer."
        )
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise BadBodyError("too_deep", _TOO_DEEP)


def _outside_strings(body: bytes) -> bytes:
    # Without escaped backslashes and quotes, every second part between quotes is a string.
    return b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def _check_fields(value: dict[str, Any]) -> None:
    if len(value) > MAX_FIELDS:
        raise BadBodyError("too_many_fields", f"The body has more than {MAX_FIELDS} fields at its top level.")
    if max(map(len, value), default=0) > MAX_FIELD_NAME:
        raise BadBodyError("field_name_too_long", f"A field name is longer than {MAX_FIELD_NAME} characters.")


def _malformed(body: bytes, error: msgspec.DecodeError) -> BadBodyError:
    if body.startswith(b"\xef\xbb\xbf"):
        return BadBodyError("byte_order_mark", "The body starts with a byte order mark; send plain UTF-8.")
    if "surrogate" in str(error) or _HALF_PAIR.search(body, _position_of(error, body) - _NEAR_BYTES):
        return BadBodyError("lone_surrogate", "A string contains half of a surrogate pair; send whole characters.")
    return BadBodyError("not_json", f"The body is not JSON: {error}.")


def _position_of(error: msgspec.DecodeError, body: bytes) -> int:
    """Return the byte at which decoding stopped, or the last byte if the error names none."""
    position = _POSITION.search(str(error))
    return int(position[1]) if position else len(body)
