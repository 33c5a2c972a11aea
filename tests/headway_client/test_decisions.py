"""The client's reading of decision responses, and its fallback without one."""

from __future__ import annotations

import json

import pytest

from headway_client.decisions import (
    AVOIDED_S,
    AWAY_S,
    KNOWN_S,
    AnswerTail,
    Decisions,
    RejectedError,
    Route,
    answer_headers,
    forwarded,
    model_of,
)


def answer(url: str, **body: object) -> bytes:
    return json.dumps({"decision_id": "d-1", "engine": {"id": "e", "name": "e", "url": url}, "body": body}).encode()


def decided(decisions: Decisions, url: str, now: float, **body: object) -> Route:
    return decisions.answered("m", 200, answer(url, **body), {}, now)


def test_without_a_response_engines_of_earlier_decisions_take_turns() -> None:
    decisions = Decisions(["http://given:1"])
    assert decisions.fallback("m", "down", 0.0).engine_url == "http://given:1"
    for url in ("http://a:1", "http://b:1"):
        decided(decisions, url, 1.0)
    urls = [decisions.fallback("m", "down", 2.0).engine_url for _ in range(4)]
    assert sorted(urls[:2]) == ["http://a:1", "http://b:1"]
    assert urls[:2] == urls[2:]
    assert decisions.fail_opens == {"down": 5}


def test_an_engine_no_longer_named_by_decisions_expires_except_during_an_outage() -> None:
    decisions = Decisions()
    decided(decisions, "http://old:1", 0.0)
    decided(decisions, "http://new:1", KNOWN_S + 1)
    later = KNOWN_S + 1_000_000
    assert {decisions.fallback("m", "down", later).engine_url for _ in range(4)} == {"http://new:1"}


def test_a_failed_engine_is_avoided_for_a_while() -> None:
    decisions = Decisions(["http://a:1", "http://b:1"])
    decisions.avoid("http://a:1", 0.0)
    assert {decisions.fallback("m", "down", 1.0).engine_url for _ in range(4)} == {"http://b:1"}
    later = AVOIDED_S + 1
    assert len({decisions.fallback("m", "down", later).engine_url for _ in range(4)}) == 2


def test_after_an_unanswered_request_the_next_ones_do_not_wait() -> None:
    decisions = Decisions(["http://a:1"])
    decisions.fallback("m", "late", 10.0)
    assert decisions.away(10.0 + AWAY_S / 2)
    assert not decisions.away(10.0 + AWAY_S)
    decided(decisions, "http://a:1", 11.0)
    assert not decisions.away(11.0)


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(500, "internal_error", "error"), (503, "shutting_down", "error"), (409, "pool_observes", "observes")],
)
def test_responses_without_a_decision_fail_open(status: int, code: str, reason: str) -> None:
    decisions = Decisions(["http://a:1"])
    body = json.dumps({"error": {"code": code}}).encode()
    assert decisions.answered("m", status, body, {}, 0.0) == Route("http://a:1")
    assert decisions.fail_opens == {reason: 1}


@pytest.mark.parametrize(
    ("status", "code"), [(429, "queue_full"), (503, "no_engine"), (401, "missing"), (404, "model_not_found")]
)
def test_a_rejection_raises_and_reaches_no_engine(status: int, code: str) -> None:
    decisions = Decisions(["http://a:1"])
    body = json.dumps({"error": {"code": code}}, separators=(",", ":")).encode()
    with pytest.raises(RejectedError) as caught:
        decisions.answered("m", status, body, {"retry-after": "7"}, 0.0)
    assert (caught.value.status, caught.value.body, caught.value.retry_after_s) == (status, body, 7.0)
    assert not decisions.fail_opens


def test_with_salted_caches_no_request_reaches_an_engine_without_a_salt() -> None:
    decisions = Decisions(["http://a:1"])
    route = decided(decisions, "http://a:1", 0.0, cache_salt="s")
    assert json.loads(route.merged(b'{"model":"m","cache_salt":"x","seed":1}')) == {
        "model": "m",
        "seed": 1,
        "cache_salt": "s",
    }
    with pytest.raises(RejectedError):
        decisions.fallback("m", "down", 1.0)
    assert decisions.fail_opens == {"impossible": 1}


def usage_in(tail: bytes) -> dict[str, int]:
    answer = AnswerTail()
    answer.first_token(tail)
    return answer.usage()


def test_usage_is_read_from_the_end_of_a_response_of_each_api() -> None:
    tail = b'{"usage": {"prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 64}}}'
    assert usage_in(tail) == {"prompt_tokens": 100, "output_tokens": 2, "cached_tokens": 64}
    tail = b'{"usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 2}}'
    assert usage_in(tail) == {"prompt_tokens": 100, "output_tokens": 2, "cached_tokens": 64}
    tail = b'{"usage": {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 2}}'
    assert usage_in(tail) == {"prompt_tokens": 100, "output_tokens": 2, "cached_tokens": 64}
    assert usage_in(b"data: [DONE]") == {}


ROLE = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}\n\n'


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("before", "token"),
    [
        (b": keep-alive\n\n" + ROLE, b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'),
        (b"", b'data: {"choices": [{"index": 0, "text": "Hel"}]}\n\n'),
        (ROLE, b'data: {"choices": [{"delta": {"tool_calls": [{"function": {"name": "drain"}}]}}]}\n\n'),
        (ROLE, b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'),
        (
            b'event: response.created\ndata: {"instructions": "event: delta"}\n\n',
            b"event: response.output_text.delta\n\n",
        ),
        (b"event: message_start\ndata: {}\n\n", b'event: content_block_delta\ndata: {"delta": {}}\n\n'),
    ],
)
def test_the_first_token_of_a_stream_is_its_first_content(before: bytes, token: bytes, size: int) -> None:
    answer = AnswerTail()
    assert not any(answer.first_token(before[begin : begin + size]) for begin in range(0, len(before), size))
    seen = [answer.first_token(token[begin : begin + size]) for begin in range(0, len(token), size)]
    assert seen.count(True) == 1
    assert not answer.failed


def test_the_first_part_of_a_whole_response_is_its_first_token() -> None:
    answer = AnswerTail()
    assert answer.first_token(b'{"id": "x", "choices": [')
    assert not answer.first_token(b"]}")


@pytest.mark.parametrize(
    "error",
    [
        b'{"error": {"message": "x"}}',
        b'data: {"error": {"message": "x"}}\n\ndata: [DONE]\n\n',
        ROLE + b'data: {"object": "error", "message": "x"}\n\n',
        b'event: error\ndata: {"type": "error"}\n\n',
        b"event: response.created\ndata: {}\n\nevent: response.failed\ndata: {}\n\n",
    ],
)
def test_an_error_with_status_200_is_a_failure_and_not_a_token(error: bytes) -> None:
    answer = AnswerTail()
    assert not any(answer.first_token(error[begin : begin + 9]) for begin in range(0, len(error), 9))
    assert answer.failed


def test_a_salt_applies_to_its_own_requests_and_a_pool_can_stop_isolating() -> None:
    decisions = Decisions(["http://a:1"])
    with pytest.raises(RejectedError):
        decisions.fallback(model_of({"model": "m", "cache_salt": "mine"}), "down", 0.0)
    decided(decisions, "http://a:1", 0.0, cache_salt="s")
    decided(decisions, "http://a:1", 1.0)
    assert decisions.fallback(model_of({"model": "m"}), "down", 2.0).engine_url == "http://a:1"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"engine": 1, "decision_id": "d", "body": {}}'])
def test_an_unreadable_response_fails_open(body: bytes) -> None:
    decisions = Decisions(["http://a:1"])
    assert decisions.answered("m", 200, body, {}, 0.0) == Route("http://a:1")
    assert decisions.fail_opens == {"error": 1}


def test_what_a_client_states_is_forwarded_and_its_other_headers_are_not() -> None:
    client = {
        "X-Session-Id": "s", "traceparent": "00-a", "Cookie": "c", "x-request-id": "job-7", "x-agent": "plännér",
        "x-headway-client-authorization": "forged", "x-headway-door": "forged", "X-Api-Key": "hw_client",
    }  # fmt: skip
    assert forwarded(client) == {
        "x-session-id": "s",
        "traceparent": "00-a",
        "x-headway-client-authorization": "Bearer hw_client",
        "x-headway-client-request-id": "job-7",
    }
    assert forwarded({"authorization": "Bearer a", "x-api-key": "b"}) == {"x-headway-client-authorization": "Bearer a"}


def test_a_rejection_keeps_the_headers_that_its_client_gets() -> None:
    sent = {"retry-after": "7", "x-headway-decision": "d", "x-llm-d-request-dropped-reason": "r", "server": "uvicorn"}
    with pytest.raises(RejectedError) as error:
        Decisions().answered("m", 429, b"{}", sent, 0.0)
    assert error.value.headers == {name: sent[name] for name in sent if name != "server"}
    assert RejectedError(503, b"", 1.0).headers == {"retry-after": "1"}


def test_a_decision_names_the_request_at_its_engine_and_in_its_answer() -> None:
    route = decided(Decisions(), "http://a:1", 0.0)
    assert route.headers == {"x-request-id": route.decision_id}
    assert answer_headers(route, {}) == {"x-headway-decision": route.decision_id, "x-request-id": route.decision_id}
    assert answer_headers(route, {"x-request-id": "job-7"})["x-request-id"] == "job-7"
    assert answer_headers(Route("http://a:1"), {}) == {}
