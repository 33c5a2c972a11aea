"""A caller without access to hit figures gets the response of a miss, wherever an engine reports hits."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.formats.engine_answer import MAX_HIDDEN_BYTES, AnswerStream
from gateway.requests.formats.hit_figures import HIDDEN, HitsUnreadableError, with_cached_tokens

CHAT_USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
HIT_OF_CHAT = {**CHAT_USAGE, "prompt_tokens_details": {"cached_tokens": 64, "created_cache_tokens": 36}}
MISSES: dict[str, Any] = {
    "chat of vLLM": {"usage": {**CHAT_USAGE, "prompt_tokens_details": None}, "metrics": None},
    "chat of SGLang": {"usage": CHAT_USAGE, "choices": [{"index": 0, "meta_info": {"cached_tokens": 0, "e2e": 4}}]},
    "responses": {"usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0, "num_cached_tokens": 9}}},
    "messages": {"usage": {"input_tokens": 100, "output_tokens": 7, "cache_creation_input_tokens": None}},
    "the end of responses": {"type": "x", "response": {"usage": {"input_tokens": 100, "input_tokens_details": None}}},
    "the start of messages": {"type": "x", "message": {"usage": {"input_tokens": 100}}},
}  # fmt: skip
HITS: dict[str, Any] = {
    "chat of vLLM": {
        "usage": HIT_OF_CHAT,
        "metrics": {"time_to_first_token_ms": 3.1},
        "kv_transfer_params": {"b": [1]},
    },
    "chat of SGLang": {
        "usage": {**HIT_OF_CHAT},
        "sglext": {"cached_tokens_details": {"device": 64}},
        "choices": [{"index": 0, "meta_info": {"cached_tokens": 64, "e2e_latency": 1}, "hidden_states": [[0.1]]}],
    },
    "responses": {
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 3, "cached_tokens_per_turn": [64]},
        }
    },
    "messages": {
        "usage": {
            "input_tokens": 30,
            "cache_read_input_tokens": 64,
            "cache_creation_input_tokens": 6,
            "cache_creation": {"ephemeral_5m_input_tokens": 6},
            "output_tokens": 7,
        }
    },
    "the end of responses": {
        "type": "x",
        "response": {"usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}}},
    },
    "the start of messages": {
        "type": "x",
        "message": {"usage": {"input_tokens": 36, "cache_read_input_tokens": 64}},
    },
}


def encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("api", MISSES)
def test_responses_of_a_hit_and_a_miss_are_equal_bytes(api: str) -> None:
    hit, miss = (with_cached_tokens(encoded(item[api]), HIDDEN) for item in (HITS, MISSES))
    assert hit == miss


@pytest.mark.parametrize("api", MISSES)
@given(cuts=st.lists(st.integers(1, 400), max_size=6), end=st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_streams_of_a_hit_and_a_miss_are_equal_however_fragmented(api: str, cuts: list[int], end: bytes) -> None:
    def passed(body: object) -> bytes:
        event = b"event: x" + end[: len(end) // 2] + b"data: " + encoded(body) + end
        sent, stream = (
            b"data: {}" + end + event + b"data: [DONE]" + end,
            AnswerStream(strip=False, cached_tokens=HIDDEN),
        )
        edges = sorted({0, len(sent), *(min(cut, len(sent)) for cut in cuts)})
        return b"".join(stream.feed(sent[a:b]) for a, b in pairwise(edges)) + stream.rest()

    assert passed(HITS[api]) == passed(MISSES[api])


def test_names_written_by_the_model_and_the_client_are_kept() -> None:
    own = {"cached_tokens": 5, "metrics": {"a": 1}}
    answer = {
        "content": [{"type": "tool_use", "input": own}],
        "choices": [{"message": {"content": '{"cached_tokens": 5}', "tool_calls": [{"function": {"arguments": own}}]}}],
        "tools": [{"parameters": {"properties": own}}],
        "metadata": {"cached_tokens": "5"},
        "text": {"format": {"schema": own}},
    }
    hit = encoded({**answer, "usage": HIT_OF_CHAT})
    assert json.loads(with_cached_tokens(hit, HIDDEN)) == {**answer, "usage": CHAT_USAGE}


def test_a_response_that_reveals_nothing_is_forwarded_byte_for_byte() -> None:
    body = b'{ "choices": [1e-05], "text": "mine", "usage": {"prompt_tokens": 5 } }'
    assert with_cached_tokens(body, HIDDEN) is body
    event = b"data: " + body + b"\n\n"
    assert AnswerStream(strip=False, cached_tokens=HIDDEN).feed(event) == event


def test_fields_next_to_a_hit_keep_their_bytes() -> None:
    vectors = b"[[1e-05,0.10000000000000000555,-0.0]]"
    body = b'{"data":' + vectors + b',"usage":' + encoded(HIT_OF_CHAT) + b"}"
    assert with_cached_tokens(body, HIDDEN) == b'{"data":' + vectors + b',"usage":' + encoded(CHAT_USAGE) + b"}"


@pytest.mark.parametrize(
    "body", [b'{"cached_tokens": 5', b'[{"cached_tokens": 5}]', b'{"cached_tokens": NaN}', b'"cached_tokens"']
)
def test_hits_that_cannot_be_removed_stop_the_response(body: bytes) -> None:
    with pytest.raises(HitsUnreadableError):
        with_cached_tokens(body, HIDDEN)
    with pytest.raises(HitsUnreadableError):
        AnswerStream(strip=False, cached_tokens=HIDDEN).feed(b"data: " + body + b"\n\n")


def test_a_long_event_is_read_whole_and_one_beyond_the_limit_stops_the_stream() -> None:
    long = {"response": {"instructions": "x" * (MAX_HIDDEN_BYTES // 2), "usage": HIT_OF_CHAT}}
    stream, sent = AnswerStream(strip=False, cached_tokens=HIDDEN), b"data: " + encoded(long) + b"\n\n"
    passed = b"".join(stream.feed(sent[at : at + 65_536]) for at in range(0, len(sent), 65_536))
    assert json.loads(passed.removeprefix(b"data: "))["response"]["usage"] == CHAT_USAGE
    with pytest.raises(HitsUnreadableError):
        AnswerStream(strip=False, cached_tokens=HIDDEN).feed(b"data: " + b"x" * (MAX_HIDDEN_BYTES + 1))


def test_an_incomplete_event_is_omitted() -> None:
    stream = AnswerStream(strip=False, cached_tokens=HIDDEN)
    assert stream.feed(b'data: {"cached_tokens": 5}') + stream.rest() == b""
    assert stream.feed(b"data: [DONE]") + stream.rest() == b"data: [DONE]"
