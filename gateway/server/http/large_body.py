"""Limits the decoding cost of a large JSON body, checking it piece by piece over iterations of the event loop.

The decoder runs without interruption, at one nanosecond per byte of text but thirty per byte of hostile numbers.
Therefore the bytes outside of strings are counted first. A thread would not help, because the decoder holds the
interpreter lock. Long base64 media are held apart (`HeldBody`): they are never copied, decoded, or hashed as a whole.
"""

from __future__ import annotations

import asyncio
import os
import re
from array import array
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

import msgspec

SMALL_BYTES = 256 * 1024
"""The decoder needs at most a few milliseconds for a body of this size."""
MAX_PARTS = 300_000
"""Limit of numbers, strings and signs, plus a quarter of the escapes. The decoder takes about 30 ns for each.

The colon of a field counts three times, because its name is inserted into a hash table.
"""
MAX_NUMBER_BYTES = 64
"""Limit of one number's digits and surrounding blanks in a long list. Long numbers are slow to decode."""
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Limit of a body without the media that are held apart: millions of tokens."""
HELD_BYTES = 1024 * 1024
"""A text of this length without blanks and escapes is held apart if the body has media or exceeds MAX_TEXT_BYTES."""
_MEDIA_MARKS = (b";base64,", b'"input_audio"')
"""Bodies with media contain one of these; bodies with long lists of numbers do not."""
MAX_NUMBERS = 1_100_000
"""Limit of a long list of token ids, which is decoded in pieces."""
_LIST_BYTES = 64 * 1024
_SHORT_GAP_BYTES = 1024
_PIECE_BYTES = 256 * 1024
_QUOTES_OF_TURN = 4096
_utf8_decoder = getincrementaldecoder("utf-8")
_BLANKS = b" \t\r\n"
_WHOLE_NUMBERS = b"0123456789," + _BLANKS
_NUMBERS = b"+-.eE" + _WHOLE_NUMBERS
_MEDIA = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-:;,."
"""Characters of data URLs and base64."""
_MEDIA_FIELD = re.compile(
    rb'"(url|data|file_data|(image|audio|video|file)_url|(image|audio)_embeds)"[ \t\r\n]*:[ \t\r\n]*"$'
).search
"""Only a digest and a length of these fields are read (requests/formats/media.py). Other fields are prompts."""
_SCHEME_CHARACTERS = 8
_TOKEN = os.urandom(16).hex()
"""Part of the name of each held text, so that clients cannot forge one."""
_NAMED = re.compile(rf".{{0,{_SCHEME_CHARACTERS}}}{_TOKEN}([0-9a-f]{{32}})([0-9a-f]+)", re.DOTALL).fullmatch
_decode_numbers = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]]).decode


class TooManyPartsError(Exception):
    """The decoder would take too long for the body; the message names the exceeded limit."""


class HeldBody(NamedTuple):
    """A body with its long media. `rest` contains names instead of the media, and starts with the same bytes."""

    body: bytes
    rest: bytes
    spans: Mapping[bytes, tuple[int, int]]
    """Name → (start, end) of the medium in the body."""

    def size(self, rest: bytes) -> int:
        """Return the length of `rest`, or of its replacement, with the media inserted."""
        return sum(map(len, self._pieces(rest)))

    async def chunks(self, rest: bytes) -> AsyncIterator[memoryview]:
        """Yield `rest`, or its replacement, in pieces with the media inserted."""
        for piece in self._pieces(rest):
            async for in_piece in in_pieces(piece):
                yield in_piece

    def _pieces(self, rest: bytes) -> Iterator[memoryview]:
        whole, source, position = memoryview(self.body), memoryview(rest), 0
        for match in re.finditer(b"|".join(map(re.escape, self.spans)), rest):
            yield source[position : match.start()]
            yield whole[slice(*self.spans[match[0]])]
            position = match.end()
        yield source[position:]


async def in_pieces(data: bytes | memoryview) -> AsyncIterator[memoryview]:
    """Yield the data in pieces, each of which takes at most one event loop step."""
    view = memoryview(data)
    for start in range(0, len(view), _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]


def held_text(text: str) -> tuple[bytes, int] | None:
    """Return (BLAKE2b digest of 128 bits, length) of the held text with this name, None if there is none."""
    named = _NAMED(text) if _TOKEN in text[: _SCHEME_CHARACTERS + len(_TOKEN)] else None
    return (bytes.fromhex(named[1]), int(named[2], 16)) if named else None


class Survey:
    """The parts of a body, whose decoding cost is bounded.

    `outside` contains the bytes outside of strings, without blanks and numbers of long lists. `rest` remains to be
    decoded: each of the already decoded `lists` is replaced by a string that `fill` recognizes. `held`: the media
    removed from it, if any.
    """

    held: HeldBody | None = None

    def __init__(self, body: bytes, outside: bytes, lists: Sequence[tuple[int, int, array[int]]]) -> None:
        self.outside = outside
        # Random, so that no text of a client can pass for a list.
        token = os.urandom(16).hex()
        self.lists = {f"{token}-{number}": numbers for number, (_, _, numbers) in enumerate(lists)}
        pieces, position = [], 0
        for (start, end, _), mark in zip(lists, self.lists, strict=True):
            pieces += [body[position:start], b'"%s"' % mark.encode()]
            position = end
        self.rest = b"".join([*pieces, body[position:]]) if lists else body

    def fill(self, value: Any) -> bool:
        """Insert the lists, as arrays, into the fields of the decoded rest. Return False if one belongs elsewhere."""
        if self.lists and isinstance(value, dict):
            for name, held in value.items():
                if isinstance(held, str) and held in self.lists:
                    value[name] = self.lists.pop(held)
                elif isinstance(held, list) and held and isinstance(held[0], str) and held[0] in self.lists:
                    held[0] = self.lists.pop(held[0])
        return not self.lists


async def surveyed(body: bytes, *, takes_lists: bool) -> Survey:
    """Survey a body; raise TooManyPartsError, or UnicodeDecodeError if it is not UTF-8."""
    holds = len(body) > MAX_TEXT_BYTES or (len(body) > HELD_BYTES and await _has_media(body))
    scan = _Scan(body, takes_lists=takes_lists and not holds, holds=holds)
    for _ in scan.turns():
        await asyncio.sleep(0)
    if holds:
        held = scan.held()
        survey = Survey(held.rest, b"".join(scan.outside), ())
        survey.held = held if held.spans else None
        return survey
    survey = Survey(body, b"".join(scan.outside), scan.lists)
    await asyncio.sleep(0)
    return survey


async def _has_media(body: bytes) -> bool:
    """Return whether the body contains a mark of media, searched in pieces: a search takes up to 1 ns per byte."""
    for start in range(0, len(body), 4 * _PIECE_BYTES):
        if any(body.find(mark, start, start + 4 * _PIECE_BYTES + len(mark)) >= 0 for mark in _MEDIA_MARKS):
            return True
        await asyncio.sleep(0)
    return False


def surveyed_at_once(body: bytes) -> Survey:
    """Survey a body without an event loop, for use in threads. Its lists stay in the body."""
    scan = _Scan(body)
    for _ in scan.turns():
        pass
    return Survey(body, b"".join(scan.outside), ())


class _Scan:
    """Scan of one body. Mutable: its results and counts."""

    def __init__(self, body: bytes, *, takes_lists: bool = False, holds: bool = False) -> None:
        self._holds = holds
        self._media: list[tuple[int, int, bytes]] = []
        self.outside: list[bytes] = []
        self.lists: list[tuple[int, int, array[int]]] = []
        self._takes_lists = takes_lists
        self._body = body
        self._parts = 0

    def turns(self) -> Iterator[None]:
        """Run the scan, yielding when it has used enough of an event loop step."""
        body, position, quote, paused_at = self._body, 0, 0, 0
        utf8 = _utf8_decoder()
        for start in range(0, len(body), 4 * _PIECE_BYTES):
            piece = body[start : start + 4 * _PIECE_BYTES]
            self._add(piece.count(b"\\") // 4)
            # The decoder would detect a wrong byte as well, but at the end of all its work.
            if not piece.isascii() or utf8.getstate()[0]:
                utf8.decode(piece)
            yield
        utf8.decode(b"", final=True)
        while quote >= 0:
            quote = body.find(b'"', position)
            end = len(body) if quote < 0 else quote
            if self._takes_lists and end - position > _LIST_BYTES:
                position = yield from self._take_list(position, end)
            while position < end:
                self._take_gap(body[position : min(end, position + _PIECE_BYTES)])
                position += _PIECE_BYTES
                if position < end:
                    yield
            if quote >= 0:
                self._add(1)
                position = yield from self._end_of_string(quote + 1)
                if self._holds and position - quote > HELD_BYTES:
                    yield from self._hold(quote + 1, position - 1)
                if self._parts >= paused_at + _QUOTES_OF_TURN:
                    paused_at = self._parts
                    yield

    def held(self) -> HeldBody:
        """Return the body with its media held apart; raise TooManyPartsError if the rest is too long."""
        body, pieces, position = self._body, [], 0
        kept = len(body) - sum(end - start for start, end, _ in self._media)
        if kept > MAX_TEXT_BYTES:
            raise TooManyPartsError(f"The body contains more than {MAX_TEXT_BYTES:,} bytes besides base64 media")
        for start, end, name in self._media:
            pieces += [body[position:start], name]
            position = end
        rest = b"".join([*pieces, body[position:]])
        return HeldBody(body, rest, {name: (start, end) for start, end, name in self._media})

    def _hold(self, start: int, end: int) -> Iterator[None]:
        """Hold a string apart if it is media."""
        if not _MEDIA_FIELD(self._body[max(0, start - 64) : start]):
            return
        digest = blake2b(digest_size=16)
        for begin in range(start, end, _PIECE_BYTES):
            piece = self._body[begin : min(end, begin + _PIECE_BYTES)]
            if piece.translate(None, _MEDIA):
                return
            digest.update(piece)
            yield
        head = self._body[start : start + _SCHEME_CHARACTERS]
        self._media.append((start, end, head + f"{_TOKEN}{digest.hexdigest()}{end - start:x}".encode()))

    def _end_of_string(self, position: int) -> Generator[None, None, int]:
        body, quotes = self._body, 0
        while (quote := body.find(b'"', position)) >= 0 and _is_escaped(body, position, quote):
            position = quote + 1
            quotes += 1
            if quotes % _QUOTES_OF_TURN == 0:
                yield
        return len(body) if quote < 0 else quote + 1

    def _take_list(self, start: int, end: int) -> Generator[None, None, int]:
        """Decode the first list in the gap if it is long and plain; return the position to continue from."""
        closing = self._body.find(b"]", start, end)
        opening = self._body.rfind(b"[", start, closing)
        if opening < 0 or closing - opening < _LIST_BYTES or opening - start > _PIECE_BYTES:
            return start
        numbers = yield from self._numbers(opening + 1, closing)
        if numbers is None:
            return start
        self._take_gap(self._body[start:opening])
        self.lists.append((opening, closing + 1, numbers))
        return closing + 1

    def _numbers(self, start: int, end: int) -> Generator[None, None, array[int] | None]:
        """Return the integers in a range of the body, None if it contains anything else."""
        numbers = array("I")
        while start < end:
            cut = end if end - start <= _PIECE_BYTES else self._body.rfind(b",", start, start + _PIECE_BYTES)
            piece = self._body[start:cut]
            if not piece.strip() or cut + 1 == end or piece.translate(None, _WHOLE_NUMBERS):
                return None
            if max(map(len, piece.split(b","))) > MAX_NUMBER_BYTES:
                return None
            try:
                numbers.extend(_decode_numbers(b"[%s]" % piece))
            except msgspec.DecodeError:
                # It is no list, or has a number that is no token id: for the decoder to name.
                return None
            if len(numbers) > MAX_NUMBERS:
                raise TooManyPartsError(f"The body contains more than {MAX_NUMBERS:,} numbers")
            start = cut + 1
            yield
        return numbers

    def _take_gap(self, gap: bytes) -> None:
        if len(gap) > _SHORT_GAP_BYTES:
            numbers = gap.split(b",")
            if max(map(len, numbers)) > MAX_NUMBER_BYTES:
                raise TooManyPartsError(
                    f"The body contains a number over {MAX_NUMBER_BYTES} characters, spaces included"
                )
            self._add(len(numbers))
            gap = gap.translate(None, _NUMBERS)
        else:
            gap = gap.translate(None, _BLANKS)
        self._add(len(gap) + 2 * gap.count(b":"))
        self.outside.append(gap)

    def _add(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise TooManyPartsError(
                f"The body contains more than {MAX_PARTS:,} numbers, strings, signs and quarters of escapes"
            )


def _is_escaped(body: bytes, start: int, quote: int) -> bool:
    """Return whether an odd number of backslashes at or after `start` precedes the quote."""
    # A short slice first: copying a long string at each of its quotes would take quadratic time.
    before = body[max(start, quote - 64) : quote]
    if not before.strip(b"\\"):
        before = body[start:quote]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
