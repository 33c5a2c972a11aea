"""Bodies of every endpoint as proxies forward them, and engine responses: all are read or rejected."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.route_request import prompt_of, read
from gateway.requests.formats.audio_form import audio_prompt, read_form
from gateway.requests.formats.endpoints import ENDPOINTS, Endpoint
from gateway.requests.formats.engine_answer import AnswerStream, UnreadableAnswerError, read_whole
from gateway.requests.formats.handoff_bodies import read_prefill_answer
from gateway.requests.formats.hit_figures import HIDDEN, HitsUnreadableError, with_cached_tokens
from gateway.server.http.json_body import BadBodyError
from headway_client.clients import run_blocking
from headway_client.decisions import AnswerTail, Decisions, RejectedError
from kvstore.connector.engine_params import LoadInstruction, outcome_in
from tests.fuzz.mutations import near

TOOL = {"name": "drain", "description": "d", "input_schema": {"type": "object"}}
PART = {"type": "text", "text": "part"}
MEDIA = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TURNS = [{"role": "system", "content": "s"}, {"role": "user", "content": [PART, MEDIA]}]
CALL = {"type": "tool_use", "id": "t", "name": "drain", "input": {"engine": "e"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [PART]}
CALLED = [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}]
ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "function_call", "call_id": "c", "name": "drain", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "done"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]},
]
SEEDS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [{"messages": TURNS, "tools": [{"type": "function", "function": TOOL}], "n": 2}],
    "/v1/completions": [{"prompt": ["a", "b"], "max_tokens": 4}, {"prompt": [[1, 2], [3]]}],
    "/v1/responses": [{"input": ITEMS, "instructions": "i", "tools": [TOOL], "max_output_tokens": 4}],
    "/v1/messages": [
        {
            "system": [PART],
            "messages": [{"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}],
        }
    ],
    "/v1/embeddings": [{"input": ["a", "b"]}, {"messages": TURNS}],
    "/rerank": [{"query": "q", "documents": ["a", {"text": "b"}]}],
    "/v2/rerank": [{"query": "q", "documents": ["a"]}],
    "/pooling": [{"input": ["a", "b"]}, {"messages": TURNS}, {"input": [[1, 2]]}],
    "/classify": [{"input": "a"}],
    "/score": [{"queries": ["q"], "documents": [{"content": [PART, MEDIA]}]}],
}
NAMES = st.sampled_from(["role", "content", "type", "text"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner),
    max_leaves=12,
)
USAGE = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
ANSWER = json.dumps({"usage": USAGE, "kv_transfer_params": {"headway": {"loaded_blocks": 2}}}).encode()
STREAM = (
    b": x\n\nevent: message_start\r\ndata: {}\r\n\r\ndata: "
    + ANSWER
    + b'\n\ndata: {"error": {"code": 500}}\n\ndata: [DONE]\n\n'
)
FORM = (
    b'--cut\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\r\n--cu\r\n--cut--\r\n'
)
DECISION = b'{"decision_id":"d","engine":{"id":"e","name":"e","url":"http://a:1"},"body":{"cache_salt":"s"}}'


def seeds_of(endpoint: Endpoint) -> list[dict[str, Any]]:
    path = endpoint.path.removeprefix("/v1") if endpoint.path.endswith(("rerank", "score")) else endpoint.path
    return [{"model": "m", **item} for item in SEEDS.get(path.removesuffix("/count_tokens"), [{"prompt": "x"}])]


def _read(data: bytes, endpoint: Endpoint) -> None:
    with suppress(BadBodyError):
        prompt_of(run_blocking(read(data, endpoint)))


@given(near([FORM]))
def test_a_form_is_read_or_rejected(data: bytes) -> None:
    with suppress(BadBodyError):
        fields = run_blocking(read_form(data, b"multipart/form-data; boundary=cut"))
        assert audio_prompt(fields).further_bytes <= len(data)


@pytest.mark.parametrize("endpoint", [item for item in ENDPOINTS if not item.is_form], ids=lambda item: item.path)
@given(data=st.data())
def test_a_body_of_an_endpoint_is_read_or_rejected(endpoint: Endpoint, data: st.DataObject) -> None:
    seeds = seeds_of(endpoint)
    for item in seeds:
        run_blocking(read(json.dumps(item).encode(), endpoint))
    _read(data.draw(near([json.dumps(item).encode() for item in seeds])), endpoint)
    seed = data.draw(st.sampled_from(seeds))
    changed = data.draw(st.dictionaries(st.sampled_from([*seed, *endpoint.limits, "priority"]), VALUES, max_size=3))
    _read(json.dumps({**seed, **changed}).encode(), endpoint)


@given(near([STREAM]), st.lists(st.integers(0, len(STREAM)), max_size=4), st.booleans())
def test_an_engines_stream_continues_with_any_content(data: bytes, cuts: list[int], strip: bool) -> None:
    stream, edges = AnswerStream(strip=strip), sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    passed = b"".join([stream.feed(data[begin:end]) for begin, end in pairwise(edges)]) + stream.rest()
    assert strip or stream.error is not None or passed == data


@given(near([ANSWER]) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_an_engines_response_is_read_as_far_as_possible(data: bytes) -> None:
    with suppress(UnreadableAnswerError):
        read_whole(data)
    read_prefill_answer(data)
    with_cached_tokens(data, 3)
    with suppress(HitsUnreadableError):
        hidden = with_cached_tokens(data, HIDDEN)
        assert hidden == data or b"cached_tokens" not in hidden
    tail = AnswerTail()
    tail.first_token(data)
    assert all(count >= 0 for count in tail.usage().values())


@given(VALUES)
def test_a_connectors_load_report_is_read_or_rejected(value: Any) -> None:
    for reported in (value, {"headway": value}):
        with suppress(ValueError):
            outcome = outcome_in(msgspec.json.decode(json.dumps(reported)))
            assert outcome is None or outcome.loaded_blocks >= 0


@given(near([msgspec.json.encode(LoadInstruction(keys="AAAAAAAAAAE=", load_blocks=1, holders=["a:1"]))]))
def test_an_order_is_read_or_rejected(data: bytes) -> None:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, ValueError):
        msgspec.json.decode(data, type=LoadInstruction).routing_keys()


@given(near([DECISION]), st.sampled_from([200, 409, 429, 500, 503]))
def test_the_client_routes_a_request_or_states_why_not(data: bytes, status: int) -> None:
    try:
        route = Decisions(["http://given:1"]).answered("m", status, data, {"retry-after": "1"}, 0.0)
    except RejectedError:
        return
    assert route.engine_url
    route.merged(b'{"model": "m"}')
