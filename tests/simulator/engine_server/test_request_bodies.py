from __future__ import annotations

import pytest

from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.request_bodies import ChatBody, CompletionBody, chat_tokens, parse_body


def test_unknown_fields_are_ignored() -> None:
    body = parse_body(b'{"prompt": "x", "temperature": 0.3, "tools": [], "logit_bias": null}', CompletionBody)
    assert body.prompt == "x"


def test_max_completion_tokens_takes_precedence() -> None:
    body = parse_body(b'{"prompt": "x", "max_tokens": 3, "max_completion_tokens": 5}', CompletionBody)
    assert body.wanted_tokens == 5


def test_an_error_names_the_field() -> None:
    with pytest.raises(EngineApiError, match=r"\$\.messages\[0\]\.role") as caught:
        parse_body(b'{"messages": [{"role": 3}]}', ChatBody)
    assert caught.value.status == 400


def test_a_message_without_content_is_empty() -> None:
    body = parse_body(b'{"messages": [{"role": "assistant", "content": null}]}', ChatBody)
    assert len(chat_tokens(body.messages)) == 4


def test_lenient_json_is_read_as_real_engines_read_it() -> None:
    loose = b'{"prompt": "16", "max_tokens": "16", "stream": 1, "stream_options": {"include_usage": "true"}, "n": 1.0}'
    body = parse_body(loose, CompletionBody)
    assert (body.prompt, body.wanted_tokens, body.stream, body.wants_usage_chunk) == ("16", 16, True, True)
