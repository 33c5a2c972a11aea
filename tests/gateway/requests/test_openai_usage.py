"""Usage is read in passing; the event that only we asked for does not reach the client."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.openai_usage import MAX_HELD_BYTES, StreamUsage, usage_of, with_cached_tokens

USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}


def _event(value: object, end: bytes = b"\n\n") -> bytes:
    return b"data: " + json.dumps(value).encode() + end


TEXT = _event({"choices": [{"delta": {"content": 'say "usage": {}'}}]})
EXTRA = _event({"choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"


def test_it_reads_usage_from_a_whole_body() -> None:
    usage = usage_of(json.dumps({"choices": [{"x": 1}], "usage": USAGE}).encode())
    assert usage is not None
    assert (usage.cached_tokens, usage.output_tokens) == (64, 7)


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"usage": 5}', b'{"choices": []}', b"\xff"])
def test_a_body_without_usage_has_none(body: bytes) -> None:
    assert usage_of(body) is None


@pytest.mark.parametrize("cached", [None, -1, 101])
def test_cached_tokens_that_cannot_be_are_not_believed(cached: int | None) -> None:
    usage = usage_of(json.dumps({"usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": cached}}}).encode())
    assert usage is not None
    assert usage.cached_tokens is None


@given(st.lists(st.integers(0, 400), max_size=12))
def test_however_the_stream_is_cut_the_extra_event_is_stripped_and_nothing_else(cuts: list[int]) -> None:
    stream = TEXT + TEXT + EXTRA + DONE
    usage = StreamUsage(strip=True)
    assert b"".join(usage.feed(part) for part in _cut(stream, cuts)) + usage.rest() == TEXT + TEXT + DONE
    assert usage.usage is not None
    assert usage.usage.cached_tokens == 64


@given(st.lists(st.integers(0, 400), max_size=12))
def test_without_stripping_every_chunk_goes_on_unchanged_and_at_once(cuts: list[int]) -> None:
    usage = StreamUsage(strip=False)
    for part in _cut(TEXT + EXTRA + DONE, cuts):
        assert usage.feed(part) == part
    assert usage.rest() == b""
    assert usage.usage is not None


def test_whole_events_are_not_held_back() -> None:
    usage = StreamUsage(strip=True)
    assert usage.feed(TEXT) == TEXT
    assert usage.feed(TEXT[:20]) == b""
    assert usage.feed(TEXT[20:] + TEXT[:5]) == TEXT


def test_events_that_end_in_crlf_are_events_too() -> None:
    usage = StreamUsage(strip=True)
    text, extra = _event({"choices": [1]}, b"\r\n\r\n"), _event({"choices": [], "usage": USAGE}, b"\r\n\r\n")
    assert usage.feed(text + extra) == text
    assert usage.usage is not None


def test_usage_beside_choices_is_read_and_stays() -> None:
    event = _event({"choices": [{"delta": {}}], "usage": USAGE})
    usage = StreamUsage(strip=True)
    assert usage.feed(event) == event
    assert usage.usage is not None


def test_an_event_without_end_is_not_held_for_ever() -> None:
    usage = StreamUsage(strip=True)
    sent = b"".join(usage.feed(b"x" * 65_536) for _ in range(2 * MAX_HELD_BYTES // 65_536))
    assert len(sent) >= MAX_HELD_BYTES


def _cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    return [stream[start:end] for start, end in pairwise(edges)]


def _chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(st.lists(st.integers(0, 10_000), max_size=8), st.booleans())
def test_another_engines_figure_replaces_the_cached_tokens_and_nothing_else(cuts: list[int], strip: bool) -> None:
    usage = StreamUsage(strip=strip, cached_tokens=5)
    passed = b"".join(usage.feed(chunk) for chunk in _chunks(TEXT + EXTRA + DONE, cuts)) + usage.rest()
    corrected = {**USAGE, "prompt_tokens_details": {"cached_tokens": 5}}
    events = [event.removeprefix(b"data: ") for event in passed.split(b"\n\n") if event]
    told = [json.loads(event) for event in events[:-1]]
    extra = [] if strip else [{"choices": [], "usage": corrected}]
    assert told == [json.loads(TEXT.removeprefix(b"data: ")), *extra]
    assert events[-1] == b"[DONE]"


@pytest.mark.parametrize("body", [b"", b"[1]", b"not json", b'{"usage":null}', b'{"a":1}'])
def test_an_answer_without_usage_stays_as_it_is(body: bytes) -> None:
    assert with_cached_tokens(body, 5) == body
