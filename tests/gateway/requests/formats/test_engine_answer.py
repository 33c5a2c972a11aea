"""A streamed response is forwarded from its content on; usage and errors are read in passing.

Usage in a response as the client sees it.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.formats.engine_answer import MAX_HELD_BYTES, AnswerStream, UnreadableAnswerError, read_whole
from gateway.requests.formats.hit_figures import HIDDEN, with_cached_tokens

USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}


def _event(value: object, end: bytes = b"\n\n") -> bytes:
    return b"data: " + json.dumps(value).encode() + end


def _choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **fields}]}


ROLE = _event(_choice(delta={"role": "assistant", "content": ""}, finish_reason=None))
TEXT = _event(_choice(delta={"content": 'say "usage": {} and "error": 1'}))
EXTRA = _event({"choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
ERROR = {"error": {"message": "Engine core died", "type": "InternalServerError", "param": None, "code": 500}}
CREATED = b'event: response.created\ndata: {"type": "response.created"}\n\n'
DELTA = b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "delta": "x"}\n\n'
STARTED = b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 9}}}\n\n'
BLOCK = b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "x"}}\n\n'


def _cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in pairwise(edges)]


def _passed(stream: AnswerStream, parts: list[bytes]) -> bytes:
    return b"".join([stream.feed(part) for part in parts]) + stream.rest()


CUTS = st.lists(st.integers(0, 2000), max_size=12)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@pytest.mark.parametrize(
    "before",
    [COMMENT, ROLE, EXTRA, CREATED, STARTED, COMMENT + ROLE + CREATED + STARTED + EXTRA, b"\n\n", b"event: ping\n\n"],
)
@pytest.mark.parametrize(
    "first", [TEXT, DELTA, BLOCK, _event(_choice(text="x")), _event(_choice(delta={}, finish_reason="stop"))]
)
@given(cuts=CUTS)
def test_no_bytes_are_forwarded_before_the_first_event_with_content(
    before: bytes, first: bytes, cuts: list[int]
) -> None:
    stream = AnswerStream(strip=False)
    for part in _cut(before, cuts):
        assert stream.feed(part) == b""
    assert not stream.begun
    assert b"".join(stream.feed(part) for part in _cut(first, cuts)) == before + first
    assert stream.begun
    assert stream.feed(b"data: half") == b"data: half"


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "x"},
        {"reasoning": "x"},
        {"tool_calls": [{"index": 0}]},
        {"refusal": "x"},
        {"audio": {"id": "a"}},
    ],
)
def test_every_kind_of_generated_delta_is_content(delta: dict[str, Any]) -> None:
    stream = AnswerStream(strip=False)
    assert stream.feed(_event(_choice(delta={"role": "assistant", "content": None, "tool_calls": [], **delta}))) != b""


@pytest.mark.parametrize("event", [b'data: {"x": 1}\n\n', b"data: text\n\n", b"data: [1]\n\n"])
def test_an_event_of_an_unknown_form_is_content(event: bytes) -> None:
    assert AnswerStream(strip=False).feed(event) == event


@given(cuts=CUTS, end=ENDS, strip=st.booleans())
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ERROR, 500),
        ({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}, 400),
        ({"error": {"message": "too long", "type": "BadRequestError"}}, 400),
        ({"error": {"message": "busy", "code": "503"}}, 503),
        ({"error": "out of memory"}, 500),
        ({"object": "error", "message": "x", "code": 429}, 429),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, 503),
        ({"type": "error", "code": "server_error", "message": "x", "param": None}, 500),
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}, 500),
        ({**ERROR, "choices": []}, 500),
    ],
)
def test_an_error_before_the_content_is_not_forwarded(
    error: Any, status: int, cuts: list[int], end: bytes, strip: bool
) -> None:
    stream = AnswerStream(strip=strip)
    sent = COMMENT + ROLE + _event(error, end + end) + DONE
    assert b"".join(stream.feed(part) for part in _cut(sent, cuts)) == b""
    assert stream.error is not None
    assert stream.error.status == status
    assert json.loads(stream.error.body)["error"]
    assert not stream.begun


@given(cuts=CUTS)
def test_an_error_after_content_is_forwarded_and_recorded(cuts: list[int]) -> None:
    stream, sent = AnswerStream(strip=True), TEXT + _event(ERROR) + DONE
    assert _passed(stream, _cut(sent, cuts)) == sent
    assert stream.error is not None
    assert (stream.begun, stream.ended) == (True, True)


@pytest.mark.parametrize("event", [{"error": None, "choices": [1]}, _choice(delta={"content": '{"error": "x"}'})])
def test_generated_text_about_errors_is_not_an_error(event: dict[str, Any]) -> None:
    stream = AnswerStream(strip=False)
    assert stream.feed(_event(event)) != b""
    assert stream.error is None


@given(cuts=CUTS, end=ENDS)
def test_only_the_extra_usage_event_is_stripped_however_the_stream_is_fragmented(cuts: list[int], end: bytes) -> None:
    text, extra, done = (item.replace(b"\n", end) for item in (TEXT, EXTRA, DONE))
    stream = AnswerStream(strip=True)
    passed = _passed(stream, _cut(text + text + extra + done, cuts))
    # Where a cut is within a CRLF, its second byte comes when its event has gone: it is one more blank line.
    assert passed.replace(end + end + b"\n", end + end) == text + text + done
    assert stream.usage is not None
    assert stream.usage.cached_tokens == 64


@given(cuts=CUTS)
def test_usage_is_stripped_from_every_event_if_the_client_did_not_ask(cuts: list[int]) -> None:
    said = _choice(delta={"content": "é"})
    stream = AnswerStream(strip=True)
    passed = _passed(stream, _cut(_event({**said, "usage": USAGE}) * 2 + EXTRA + DONE, cuts))
    assert [json.loads(part[6:]) for part in passed.split(b"\n\n")[:-2]] == [said, said]
    assert stream.usage is not None


@given(cuts=CUTS)
def test_without_stripping_every_chunk_is_forwarded_unchanged_and_immediately(cuts: list[int]) -> None:
    stream = AnswerStream(strip=False)
    assert stream.feed(TEXT) == TEXT
    for part in _cut(TEXT + EXTRA + DONE, cuts):
        assert stream.feed(part) == part
    assert stream.rest() == b""
    assert stream.usage is not None
    assert stream.ended


def test_whole_events_are_not_held_back() -> None:
    stream = AnswerStream(strip=True)
    assert stream.feed(TEXT) == TEXT
    assert stream.feed(TEXT[:20]) == b""
    assert stream.feed(TEXT[20:] + TEXT[:5]) == TEXT


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("piece", [b"x", b": x\n\n"])
def test_a_beginning_without_content_is_held_up_to_a_limit(strip: bool, piece: bytes) -> None:
    stream, piece = AnswerStream(strip=strip), piece * 10_000
    sent, passed = b"", b""
    while len(sent) <= MAX_HELD_BYTES:
        assert passed == b""
        sent += piece
        passed += stream.feed(piece)
    assert passed == sent
    assert stream.begun


def test_an_event_without_end_is_held_up_to_a_limit() -> None:
    stream = AnswerStream(strip=True)
    stream.feed(TEXT)
    sent = b"".join(stream.feed(b"x" * 65_536) for _ in range(2 * MAX_HELD_BYTES // 65_536))
    assert len(sent) >= MAX_HELD_BYTES


def test_a_complete_response_without_content_is_forwarded_at_its_end() -> None:
    stream = AnswerStream(strip=True)
    assert stream.feed(ROLE + EXTRA + DONE) == b""
    assert (stream.begun, stream.ended, stream.rest()) == (False, True, ROLE + DONE)


@given(cuts=CUTS, strip=st.booleans())
def test_the_other_engines_cached_tokens_replace_the_figure_and_nothing_else(cuts: list[int], strip: bool) -> None:
    stream = AnswerStream(strip=strip, cached_tokens=5)
    passed = _passed(stream, _cut(TEXT + EXTRA + DONE, cuts))
    corrected = {**USAGE, "prompt_tokens_details": {"cached_tokens": 5}}
    events = [event.removeprefix(b"data: ") for event in passed.split(b"\n\n") if event]
    extra = [] if strip else [{"choices": [], "usage": corrected}]
    assert [json.loads(event) for event in events[:-1]] == [json.loads(TEXT.removeprefix(b"data: ")), *extra]
    assert events[-1] == b"[DONE]"


MESSAGES = {"input_tokens": 30, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 6, "output_tokens": 7}
RESPONSES = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 7}


@pytest.mark.parametrize("reported", [USAGE, MESSAGES, RESPONSES])
def test_usage_of_every_api_form_is_read_alike(reported: dict[str, object]) -> None:
    usage, _ = read_whole(json.dumps({"usage": reported, "message": "text", "response": "text"}).encode())
    stream = AnswerStream(strip=False)
    stream.feed(_event({"type": "response.completed", "response": {"usage": reported}}))
    for used in (usage, stream.usage):
        assert used is not None
        assert (used.counted_tokens, used.cached_tokens, used.output_tokens) == (100, 64, 7)


def test_usage_missing_at_the_end_of_a_stream_keeps_its_first_values() -> None:
    stream = AnswerStream(strip=False)
    for event in ({"message": {"usage": {**MESSAGES, "output_tokens": 1}}}, {"usage": {"output_tokens": 7}}):
        stream.feed(b"event: message_x\n" + _event(event))
    assert stream.usage is not None
    assert (stream.usage.counted_tokens, stream.usage.cached_tokens, stream.usage.output_tokens) == (100, 64, 7)


@pytest.mark.parametrize(
    ("cached", "left"),
    [
        (HIDDEN, {"input_tokens": 100, "output_tokens": 7}),
        (5, {"input_tokens": 95, "cache_read_input_tokens": 5, "output_tokens": 7}),
    ],
)
def test_messages_count_only_uncached_tokens_as_input(cached: int, left: dict[str, int]) -> None:
    event = b"event: message_delta\n" + _event({"type": "message_delta", "usage": MESSAGES})
    stream = AnswerStream(strip=False, cached_tokens=cached)
    sent = stream.feed(event) + stream.rest()
    assert sent.startswith(b"event: message_delta\ndata: ")
    assert json.loads(sent.partition(b"data: ")[2])["usage"] == left


@given(cuts=CUTS, end=ENDS)
def test_removed_fields_are_gone_from_marked_events_however_fragmented(cuts: list[int], end: bytes) -> None:
    marked = _event({"mark": "secret", "choices": []}, end + end)
    stream = _event({"choices": [1]}, end + end) + marked + b"data: [DONE]" + end + end
    seen: list[bytes] = []

    def take(data: bytes) -> bytes:
        seen.append(data)
        return b'{"choices": []}'

    passed = _passed(AnswerStream(strip=False, mark=b'"mark"', take=take), _cut(stream, cuts))
    assert passed == stream.replace(marked, _event({"choices": []}, end + end))
    assert seen == [json.dumps({"mark": "secret", "choices": []}).encode()]


def test_usage_is_read_from_a_whole_body() -> None:
    usage, error = read_whole(json.dumps({"choices": [{"x": 1}], "usage": USAGE, "error": None}).encode())
    assert usage is not None
    assert (usage.cached_tokens, usage.output_tokens, error) == (64, 7, None)


@pytest.mark.parametrize("body", [b'{"usage": 5}', b'{"choices": []}', b'{"usage": null}'])
def test_a_body_without_usage_has_none(body: bytes) -> None:
    assert read_whole(body) == (None, None)


@pytest.mark.parametrize("body", [b"", b"not json", b'{"choices": [', b"\xff", b"<html></html>"])
def test_a_body_that_is_not_json_is_not_a_response(body: bytes) -> None:
    with pytest.raises(UnreadableAnswerError):
        read_whole(body)


@pytest.mark.parametrize("error", [ERROR, {"object": "error", "message": "x", "code": 500}, {"error": "x"}])
def test_an_error_in_a_whole_body_is_recorded(error: dict[str, Any]) -> None:
    _, seen = read_whole(json.dumps(error).encode())
    assert seen is not None
    assert seen.status == 500


@pytest.mark.parametrize("cached", [None, -1, 101])
def test_impossible_cached_token_counts_are_ignored(cached: int | None) -> None:
    usage, _ = read_whole(json.dumps({"usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": cached}}}).encode())
    assert usage is not None
    assert usage.cached_tokens is None


@pytest.mark.parametrize("body", [b"", b"[1]", b"not json", b'{"usage":null}', b'{"a":1}'])
def test_a_response_without_usage_is_unchanged(body: bytes) -> None:
    assert with_cached_tokens(body, 5) == body


@pytest.mark.parametrize(
    ("usage", "cached", "left"),
    [
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 64, "created_cache_tokens": 36}}, HIDDEN, {}),
        (RESPONSES, HIDDEN, {"cached_tokens": 0}),
        (RESPONSES, 5, {"cached_tokens": 5}),
    ],
)
def test_usage_details_show_only_what_the_client_can_see(
    usage: dict[str, object], cached: int, left: dict[str, int]
) -> None:
    only = json.loads(with_cached_tokens(json.dumps({"usage": usage}).encode(), cached))["usage"]
    assert (only.get("prompt_tokens_details") or only.get("input_tokens_details") or {}) == left
