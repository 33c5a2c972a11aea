"""Parses server-sent events of a relayed stream and keeps every byte as sent.

Source: WHATWG HTML, "Server-sent events" (§9.2.6, interpreting an event stream). Lines end in CRLF, LF, or CR, in any
mixture; a blank line ends an event; lines that begin with a colon are comments. Libraries return only the parsed
fields, so a relay based on them could not forward the received bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_LINE_END = rb"(?:\r\n|\n|\r(?!\n))"
_EVENT = re.compile(rb"(?s).*?" + _LINE_END + _LINE_END)
_COMMENT = re.compile(rb"(?::[^\r\n]*" + _LINE_END + rb")+")
_BLANK = (b"\n\n", b"\n\r", b"\r\r")
"""Byte pairs. Every blank line contains one of them."""
_DATA = b"data: "
_BOM = b"\xef\xbb\xbf"


class StreamEvent(msgspec.Struct, frozen=True, gc=False):
    """One event, or comments between events."""

    raw: bytes
    """Bytes as sent, including the blank line."""
    kind: bytes
    """The event's `event` field."""
    data: bytes | None
    """The event's `data` fields, joined by line feeds; None: it has none, so clients ignore it."""

    def with_data(self, data: bytes) -> bytes:
        """Return the event as sent, but with this data, which must not contain line ends."""
        lines, is_first = [], True
        for line in self.raw.splitlines(keepends=True):
            if not _is_data(line):
                lines.append(line)
            elif is_first:
                content = line.rstrip(b"\r\n")
                lines.append(b"data: " + data + line[len(content) :])
                is_first = False
        return b"".join(lines)


class EventCutter:
    """Splits a stream of arbitrary chunks after its events. Mutable: the bytes of the unfinished event."""

    def __init__(self) -> None:
        self.unfinished = self._rest = bytearray()
        """The bytes of the unfinished event, which only this object changes."""

    def __len__(self) -> int:
        return len(self._rest)

    def feed(self, chunk: bytes) -> bytes:
        """Return all complete events and comments not yet returned."""
        if not self._rest:
            cut = _last_cut(chunk, 0)
            self._rest += chunk[cut:]
            return chunk[:cut]
        # A blank line may have begun with the last byte.
        searched = len(self._rest) - 1
        self._rest += chunk
        cut = _last_cut(self._rest, searched)
        whole = bytes(self._rest[:cut])
        del self._rest[:cut]
        return whole

    def copy(self) -> bytes:
        """Return the unfinished event without removing it."""
        return bytes(self._rest)

    def rest(self) -> bytes:
        """Remove and return the unfinished event."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


def events_in(whole: bytes) -> Iterator[StreamEvent]:
    """Yield the events in bytes that an EventCutter returned."""
    begin, is_plain = 0, b"\r" not in whole
    while begin < len(whole):
        end = whole.find(b"\n", begin) + 2 if is_plain and whole.startswith(_DATA, begin) else 0
        if end and whole.startswith(b"\n", end - 1):
            # One line of data, as nearly all events.
            yield StreamEvent(whole[begin:end], b"", whole[begin + len(_DATA) : end - 2])
        else:
            # A comment needs no blank line: a keep-alive is complete as soon as its line is.
            match = _COMMENT.match(whole, begin) or _EVENT.match(whole, begin)
            end = match.end() if match is not None else len(whole)
            yield _parsed(whole[begin:end])
        begin = end


def _last_cut(data: bytes | bytearray, searched: int) -> int:
    """Return the end of the last complete event. No event ends before the byte at `searched`."""
    begin = max(0, searched)
    cut = max(data.rfind(pair, begin) for pair in _BLANK) + 2
    if cut < 2:
        cut = 0
    # The pair ended in the middle of a CRLF.
    elif data[cut - 1 : cut + 1] == b"\r\n":
        cut += 1
    comment = _COMMENT.match(data, cut)
    return comment.end() if comment is not None else cut


def _parsed(raw: bytes) -> StreamEvent:
    kind, data = b"", list[bytes]()
    for line in raw.removeprefix(_BOM).splitlines():
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            kind = value.removeprefix(b" ")
    return StreamEvent(raw, kind, b"\n".join(data) if data else None)


def _is_data(line: bytes) -> bool:
    return line.removeprefix(_BOM).partition(b":")[0].rstrip(b"\r\n") == b"data"
