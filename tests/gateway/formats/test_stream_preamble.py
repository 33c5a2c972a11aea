"""A stream is held back until its engine has made a token, however it is cut."""

from __future__ import annotations

import pytest

from gateway.formats.stream_preamble import MAX_HELD_BYTES, Preamble

KINDS = frozenset((b"response.created", b"response.in_progress"))
CREATED = b'event: response.created\ndata: {"type": "response.created"}\n\n'
DELTA = b'event: response.output_text.delta\ndata: {"delta": "x"}\n\n'


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_it_lets_all_go_with_the_first_event_of_the_answer(step: int) -> None:
    preamble, stream, told = Preamble(KINDS), CREATED + b": ping\n\n" + CREATED + DELTA + DELTA, b""
    for start in range(0, len(stream), step):
        told += preamble.feed(stream[start : start + step])
        assert preamble.over == (start + step >= len(stream) - len(DELTA))
        assert bool(told) == preamble.over
    assert told + preamble.rest() == stream


def test_a_stream_of_an_api_without_preamble_passes() -> None:
    preamble = Preamble(frozenset())
    assert preamble.over
    assert preamble.feed(b"x") == b"x"


@pytest.mark.parametrize("event", [b'data: {"x": 1}\n\n', b"event: error\r\ndata: {}\r\n\r\n"])
def test_an_event_without_a_known_kind_is_the_answer(event: bytes) -> None:
    assert Preamble(KINDS).feed(event) == event


def test_what_is_held_is_bounded() -> None:
    preamble = Preamble(KINDS)
    assert preamble.feed(b"x" * MAX_HELD_BYTES) == b""
    assert len(preamble.feed(b"x")) == MAX_HELD_BYTES + 1
