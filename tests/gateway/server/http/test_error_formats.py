"""Errors in the format of each API.

Errors have OpenAI's format and state when to retry.
"""

from __future__ import annotations

import json

import pytest

from gateway.server.http.error_formats import ANTHROPIC, OPENAI, RESPONSES, ErrorFormat, format_of
from gateway.server.http.openai_error import ApiError


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/v1/messages", ANTHROPIC),
        ("/v1/messages/count_tokens", ANTHROPIC),
        ("/v1/messages_of_others", OPENAI),
        ("/v1/responses", OPENAI),
        ("/api/v1/route", OPENAI),
    ],
)
def test_only_the_messages_api_uses_anthropic_errors(path: str, known: ErrorFormat) -> None:
    assert format_of(path) is known


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (429, "rate_limit_error"), (503, "overloaded_error")]
)
def test_the_anthropic_error_type_follows_from_the_status(status: int, kind: str) -> None:
    assert json.loads(ANTHROPIC.of(ApiError(status, "Later.", "queue_full", param="model"))) == {
        "type": "error",
        "error": {"type": kind, "message": "Later.", "code": "queue_full", "param": "model"},
    }


def test_a_final_error_event_is_separated_from_a_partial_event() -> None:
    reported = OPENAI.event(502, "Retry.", "broken_stream")
    assert reported.startswith(b"\n\ndata: ")
    assert json.loads(reported[8:])["error"]["code"] == "broken_stream"
    for item, inner in ((RESPONSES, "code"), (ANTHROPIC, "error")):
        event = item.event(502, "Retry.", "broken_stream")
        assert event.startswith(b"\n\nevent: error\ndata: ")
        assert event.endswith(b"\n\n")
        assert inner in json.loads(event.partition(b"data: ")[2])


def test_the_body_has_the_four_fields_that_clients_read() -> None:
    error = ApiError(404, "No such model.", "model_not_found", param="model")
    assert json.loads(error.body) == {
        "error": {"message": "No such model.", "type": "not_found_error", "code": "model_not_found", "param": "model"}
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.0, b"1"), (0.2, b"1"), (1.5, b"2"), (1e12, b"86400")])
def test_retry_after_is_rounded_up_to_whole_seconds(seconds: float, header: bytes) -> None:
    assert ApiError(429, "Later.", "queue_full", retry_after_s=seconds).headers == [(b"retry-after", header)]


def test_a_401_requests_a_bearer_token() -> None:
    assert ApiError(401, "Who?", "missing_api_key").headers == [(b"www-authenticate", b"Bearer")]
