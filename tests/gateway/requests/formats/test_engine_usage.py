"""Usage in a response as the client sees it."""

from __future__ import annotations

import json

import pytest

from gateway.requests.formats.hit_figures import HIDDEN, with_cached_tokens

USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
RESPONSES = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 7}


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
