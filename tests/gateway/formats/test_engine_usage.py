"""Usage is read in passing; the event that only we asked for does not reach the client."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.formats.engine_usage import MAX_HELD_BYTES, StreamUsage, usage_of
from gateway.formats.hit_figures import UNTOLD, with_cached_tokens

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


MESSAGES = {"input_tokens": 30, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 6, "output_tokens": 7}
RESPONSES = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 7}


@pytest.mark.parametrize("told", [USAGE, MESSAGES, RESPONSES])
def test_each_apis_usage_says_the_same(told: dict[str, object]) -> None:
    usage = usage_of(json.dumps({"usage": told, "message": "text", "response": "text"}).encode())
    assert usage is not None
    assert (usage.counted_tokens, usage.cached_tokens, usage.output_tokens) == (100, 64, 7)


def test_what_the_end_of_a_stream_leaves_out_stays_as_it_began() -> None:
    stream = StreamUsage(strip=False)
    for event in ({"message": {"usage": {**MESSAGES, "output_tokens": 1}}}, {"usage": {"output_tokens": 7}}):
        stream.feed(b"event: message_x\n" + _event(event))
    assert stream.usage is not None
    assert (stream.usage.counted_tokens, stream.usage.cached_tokens, stream.usage.output_tokens) == (100, 64, 7)


@pytest.mark.parametrize(
    ("told", "cached", "left"),
    [
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 64, "created_cache_tokens": 36}}, UNTOLD, {}),
        (RESPONSES, UNTOLD, {"cached_tokens": 0}),
        (RESPONSES, 5, {"cached_tokens": 5}),
    ],
)
def test_details_tell_what_the_client_may_know(told: dict[str, object], cached: int, left: dict[str, int]) -> None:
    only = json.loads(with_cached_tokens(json.dumps({"usage": told}).encode(), cached))["usage"]
    assert (only.get("prompt_tokens_details") or only.get("input_tokens_details") or {}) == left


@pytest.mark.parametrize(
    ("cached", "left"),
    [
        (UNTOLD, {"input_tokens": 100, "output_tokens": 7}),
        (5, {"input_tokens": 95, "cache_read_input_tokens": 5, "output_tokens": 7}),
    ],
)
def test_messages_count_as_input_what_was_not_cached(cached: int, left: dict[str, int]) -> None:
    event = b"event: message_delta\n" + _event({"type": "message_delta", "usage": MESSAGES})
    usage = StreamUsage(strip=False, cached_tokens=cached)
    told = usage.feed(event) + usage.rest()
    assert told.startswith(b"event: message_delta\ndata: ")
    assert json.loads(told.partition(b"data: ")[2])["usage"] == left


@given(cuts=st.lists(st.integers(0, 400), max_size=6), end=st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_what_is_taken_out_of_marked_events_is_gone_however_the_stream_is_cut(cuts: list[int], end: bytes) -> None:
    marked = _event({"mark": "secret", "choices": []}, end)
    stream = _event({"choices": [1]}, end) + marked + b"data: [DONE]" + end
    seen: list[bytes] = []

    def take(data: bytes) -> bytes:
        seen.append(data.strip())
        return b'{"choices": []}'

    usage = StreamUsage(strip=False, mark=b'"mark"', take=take)
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    told = b"".join(usage.feed(stream[begin:stop]) for begin, stop in pairwise(places)) + usage.rest()
    assert told == stream.replace(marked, _event({"choices": []}, end))
    assert seen == [json.dumps({"mark": "secret", "choices": []}).encode()]
