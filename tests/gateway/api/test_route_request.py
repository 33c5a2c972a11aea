"""Which bodies the synchronous fast path reads."""

import pytest

from gateway.api.route_request import read_at_once
from gateway.formats.endpoints import BY_PATH, CHAT

FLAT = b'{"model": "m", "token_ids": [1, 2, 3], "wait": false}'
TEXT = b'{"model": "m", "prompt": "one two", "wait": false}'
CHAT_BODY = b'{"model": "m", "messages": [{"role": "user", "content": "one two"}]}'


@pytest.mark.parametrize("texts", [True, False])
def test_token_ids_are_read_whoever_keys_texts(texts: bool) -> None:
    asked = read_at_once(FLAT, None, waits=True, texts=texts)
    assert asked is not None
    assert asked.token_ids is not None


def test_texts_are_read_only_where_a_pool_keys_them_without_a_tokenizer() -> None:
    assert read_at_once(TEXT, None, waits=True, texts=True) is not None
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=False, texts=True) is not None
    # Decoded here they would be decoded once more on their way to the engine that tokenizes them.
    assert read_at_once(TEXT, None, waits=True, texts=False) is None
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=False, texts=False) is None


def test_a_request_that_may_be_queued_is_not_read() -> None:
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=True, texts=True) is None
    assert read_at_once(FLAT.replace(b"false", b"true"), None, waits=True, texts=True) is None
