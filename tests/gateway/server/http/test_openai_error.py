"""Errors have OpenAI's format and state when to retry."""

from __future__ import annotations

import json

import pytest

from gateway.server.http.openai_error import ApiError


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
