"""Request bodies on the synchronous fast path, and their lenient parsing on every path."""

from typing import Any

import msgspec
import pytest

from gateway.api.observe_request import read_observation
from gateway.api.route_request import prompt_of, read, read_at_once, read_flat
from gateway.requests.formats.endpoints import BY_PATH, CHAT, COMPLETIONS, Endpoint
from gateway.requests.formats.prompt import TokenPrompt
from gateway.server.http.json_body import BadBodyError

FLAT = b'{"model": "m", "token_ids": [1, 2, 3], "wait": false}'
TEXT = b'{"model": "m", "prompt": "one two", "wait": false}'
CHAT_BODY = b'{"model": "m", "messages": [{"role": "user", "content": "one two"}]}'


@pytest.mark.parametrize("texts", [True, False])
def test_the_fast_path_reads_token_ids_with_and_without_tokenizers(texts: bool) -> None:
    asked = read_at_once(FLAT, None, waits=True, texts=texts)
    assert asked is not None
    assert asked.token_ids is not None


def test_the_fast_path_reads_texts_only_for_pools_without_a_tokenizer() -> None:
    assert read_at_once(TEXT, None, waits=True, texts=True) is not None
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=False, texts=True) is not None
    # Decoded here they would be decoded once more on their way to the engine that tokenizes them.
    assert read_at_once(TEXT, None, waits=True, texts=False) is None
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=False, texts=False) is None


def test_the_fast_path_declines_a_request_that_can_be_queued() -> None:
    assert read_at_once(CHAT_BODY, BY_PATH[CHAT], waits=True, texts=True) is None
    assert read_at_once(FLAT.replace(b"false", b"true"), None, waits=True, texts=True) is None


LOOSE = {"max_tokens": "16", "priority": 1.0, "add_generation_prompt": 1, "continue_final_message": "no"}
STRICT = {"max_tokens": 16, "priority": 1, "add_generation_prompt": True, "continue_final_message": False}


@pytest.mark.parametrize("endpoint", [None, BY_PATH[CHAT]])
async def test_lenient_json_reads_like_strict_json(endpoint: Endpoint | None) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "one two"}], "wait": False}
    asked = [await read(msgspec.json.encode({**chat, **fields}), endpoint) for fields in (LOOSE, STRICT)]
    assert [(item.max_tokens, item.priority) for item in asked] == [(16, 1)] * 2
    for item in (LOOSE, STRICT):
        at_once = read_at_once(msgspec.json.encode({**chat, **item}), endpoint, waits=True, texts=True)
        assert at_once is not None
        assert (at_once.max_tokens, at_once.priority) == (16, 1)


@pytest.mark.parametrize("field", [{"max_tokens": "many"}, {"max_tokens": 16.5}, {"priority": "first"}])
async def test_numbers_that_no_engine_accepts_are_rejected(field: dict[str, Any]) -> None:
    with pytest.raises(BadBodyError) as caught:
        await read(msgspec.json.encode({"model": "m", "prompt": "one two", **field}))
    assert caught.value.param == next(iter(field))


async def test_observations_are_parsed_as_leniently() -> None:
    request = {"model": "m", "prompt_tokens": "64", "max_tokens": 16.0}
    line = {"request": request, "engine": "e", "started_at": 1.0, "total_s": 1.0}
    observed = await read_observation(msgspec.json.encode(line))
    assert (observed.request.prompt_tokens, observed.request.max_tokens) == (64, 16)


@pytest.mark.parametrize("endpoint", [None, BY_PATH[COMPLETIONS]])
@pytest.mark.parametrize("fields", [{"truncate_prompt_tokens": 4}, {"prompt_embeds": "AAAA"}, {"echo": "true"}])
async def test_hits_are_not_compared_for_a_prompt_that_the_engine_changes(
    fields: dict[str, Any], endpoint: Endpoint | None
) -> None:
    asked = await read(msgspec.json.encode({"model": "m", "prompt": "one two", **fields}), endpoint)
    assert not asked.comparable
    plain = await read(msgspec.json.encode({"model": "m", "prompt": "one two", "echo": "false"}), endpoint)
    assert plain.comparable


async def test_the_fast_path_declines_token_ids_that_an_engine_truncates() -> None:
    body = FLAT.replace(b"}", b', "truncate_prompt_tokens": 2}')
    assert read_flat(body) is None
    asked = await read(body)
    assert prompt_of(asked) == TokenPrompt([1, 2, 3], keeps=2)
    assert not asked.comparable
