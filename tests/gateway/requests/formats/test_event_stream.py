"""Event streams are parsed as the standard requires, however fragmented, and forwarded byte for byte."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.formats.event_stream import EventCutter, events_in

ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
FIELDS = st.sampled_from(
    [b'data: {"a": 1}', b"data:x", b"data", b": ping", b":", b"id: 7", b"retry: 10", b"odd", "data: é".encode()]
)


def standard(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Return kind and data of each dispatched event, from a simple reference implementation of the standard."""
    events, kind, data = [], b"", []
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in text.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if not line:
            if data:
                events.append((kind, b"\n".join(data)))
            kind, data = b"", []
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
    return events


def read(parts: list[bytes]) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the parsed events, and all forwarded bytes."""
    cutter, events, passed = EventCutter(), [], b""
    for part in parts:
        whole = cutter.feed(part)
        passed += whole
        events += [(event.kind, event.data) for event in events_in(whole) if event.data is not None]
    return events, passed + cutter.rest()


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(index % (len(stream) + 1) for index in cuts)})
    return [stream[begin:end] for begin, end in pairwise(edges)]


@given(
    st.lists(
        st.tuples(
            st.lists(FIELDS | st.sampled_from([b"event: error"]), max_size=4), st.lists(ENDS, min_size=5, max_size=5)
        ),
        max_size=6,
    ),
    st.lists(st.integers(0, 500), max_size=12),
    st.booleans(),
)
def test_mixed_line_ends_comments_and_fragments_parse_as_the_standard_requires(blocks, cuts, bom: bool) -> None:
    stream = b"\xef\xbb\xbf" * bom
    for lines, ends in blocks:
        stream += b"".join(line + end for line, end in zip([*lines, b""], ends, strict=False))
    events, passed = read(cut(stream, cuts))
    assert passed == stream
    assert events == standard(stream)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_bytes_are_forwarded_unchanged(stream: bytes, cuts: list[int]) -> None:
    assert read(cut(stream, cuts))[1] == stream


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_comment_is_complete_without_a_blank_line(end: bytes) -> None:
    cutter = EventCutter()
    assert cutter.feed(b": keep-alive" + end) == b": keep-alive" + end
    assert cutter.feed(b"data: a" + end) == b""
    assert cutter.feed(b": within" + end) == b""


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_complete_at_the_first_byte_of_its_blank_line(end: bytes) -> None:
    cutter = EventCutter()
    assert cutter.feed(b"data: a" + end + end[:1]) == b"data: a" + end + end[:1]


def test_replacing_data_keeps_the_other_lines_and_line_ends() -> None:
    (event,) = events_in(b"\xef\xbb\xbfdata: {\r\nid: 7\revent: x\ndata: }\n\n")
    assert event.data == b"{\n}"
    assert event.with_data(b"new") == b"data: new\r\nid: 7\revent: x\n\n"


def test_a_large_event_in_small_pieces_is_scanned_once() -> None:
    cutter = EventCutter()
    for _ in range(200_000):
        assert cutter.feed(b"xxxxx") == b""
    assert len(cutter) == 1_000_000
