"""Block keys of chats with media: exact before the first medium, estimated after it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.formats.media import LINKED_TOKENS
from gateway.requests.formats.prompt import chat_prompt
from gateway.requests.prompt_keys import CLOSING_TOKENS, KeyedPrompt, PromptKeys
from kvstore.keys.block_keys import media_block_key, token_block_keys
from tests.gateway.requests.test_prompt_keys import Tokenizer, pool_of

BLOCK = 4
MEDIA_BLOCKS = LINKED_TOKENS // BLOCK
SYSTEM = {"role": "system", "content": "Be brief and kind."}


def image(content: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{content}"}}


def user(*parts: str | dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}


async def keyed(*messages: dict[str, Any], domain: str = "t", lora: str = "", **fields: Any) -> KeyedPrompt:
    prompt = chat_prompt({"messages": list(messages), **fields})
    return await PromptKeys().keys(pool_of(Tokenizer()), domain, prompt, lora=lora)


async def test_keys_cover_the_tokens_then_the_medium_then_the_following_text() -> None:
    pool, tokenizer = pool_of(Tokenizer()), Tokenizer()
    made = await keyed(SYSTEM, user("look", image("a"), "what is it?"))
    text_before = str([SYSTEM, user("look")]).encode()
    exact = token_block_keys(pool.seed("t"), list(text_before), BLOCK)[: (len(text_before) - CLOSING_TOKENS) // BLOCK]
    assert made.keys[: len(exact)] == exact
    digest = chat_prompt({"messages": [user(image("a"))]}).media[0].digest
    name = pool.domains.media_name("t", digest)
    media = made.keys[len(exact) : len(exact) + MEDIA_BLOCKS]
    assert media == tuple(media_block_key(pool.seed(""), name, index) for index in range(MEDIA_BLOCKS))
    assert len(made.keys) > len(exact) + MEDIA_BLOCKS
    assert (made.source, made.salted) == ("media", True)
    # The assumed length is no reason to reject the prompt.
    assert made.prompt_tokens - made.further_tokens == len(text_before)
    assert tokenizer.calls == 0


async def test_text_before_an_image_is_tokenized_once_for_all_turns() -> None:
    tokenizer, keys = Tokenizer(), PromptKeys()
    pool = pool_of(tokenizer)
    turns = [SYSTEM, user(image("a"), "what is it?")]
    for number in range(3):
        await keys.keys(pool, "t", chat_prompt({"messages": turns}))
        turns += [{"role": "assistant", "content": "a cat"}, user(f"and {number}?")]
    assert tokenizer.calls == 1
    assert tokenizer.extra == {"add_generation_prompt": False, "continue_final_message": False}


async def test_a_chat_that_begins_with_an_image_needs_no_tokenizer() -> None:
    tokenizer = Tokenizer()
    tokenizer.fails = True
    made = await PromptKeys().keys(pool_of(tokenizer), "t", chat_prompt({"messages": [user(image("a"), "x")]}))
    assert tokenizer.calls == 0
    assert len(made.keys) > MEDIA_BLOCKS


async def test_the_medium_has_keys_even_without_a_tokenizer() -> None:
    tokenizer = Tokenizer()
    tokenizer.fails = True
    prompt = chat_prompt({"messages": [SYSTEM, user(image("a"), "what is it?")]})
    failed = await PromptKeys().keys(pool_of(tokenizer), "t", prompt)
    well = await PromptKeys().keys(pool_of(Tokenizer()), "t", prompt)
    assert well.keys[-len(failed.keys) :] == failed.keys
    assert len(failed.keys) > MEDIA_BLOCKS


@pytest.mark.parametrize(
    "other",
    [{"domain": "u"}, {"domain": ""}, {"lora": "sql"}],
    ids=["another tenant", "no tenant", "an adapter"],
)
async def test_separated_caches_share_no_keys(other: dict[str, str]) -> None:
    messages = (SYSTEM, user("look", image("a"), "what is it?", image("b"), "and that?"))
    one, two = await keyed(*messages), await keyed(*messages, **other)
    assert not set(one.keys) & set(two.keys)


async def test_a_different_image_shares_only_the_keys_before_it() -> None:
    one = await keyed(SYSTEM, user(image("a"), "what is it? " * 9))
    two = await keyed(SYSTEM, user(image("b"), "what is it? " * 9))
    same = [a == b for a, b in zip(one.keys, two.keys, strict=True)]
    exact = same.index(False)
    assert exact > 0
    assert not any(same[exact:])


async def test_media_with_different_processing_options_share_no_hit() -> None:
    one = await keyed(user(image("a"), "what is it?"))
    two = await keyed(user(image("a"), "what is it?"), mm_processor_kwargs={"num_crops": 4})
    assert not set(one.keys) & set(two.keys)


async def test_tools_affect_the_keys_although_they_precede_the_image() -> None:
    one = await keyed(user(image("a"), "what is it? " * 9))
    two = await keyed(user(image("a"), "what is it? " * 9), tools=[{"type": "function", "function": {"name": "f"}}])
    assert one.keys[:MEDIA_BLOCKS] != two.keys[MEDIA_BLOCKS:]
    assert not set(one.keys[MEDIA_BLOCKS:]) & set(two.keys[MEDIA_BLOCKS:])


async def test_events_correct_a_mediums_length_and_the_following_keys_stay() -> None:
    keys, pool, prompt = PromptKeys(), pool_of(Tokenizer()), chat_prompt({"messages": [user(image("a"), "x" * 99)]})
    guessed = await keys.keys(pool, "t", prompt)
    pool.domains.media_blocks[pool.domains.media_name("t", prompt.media[0].digest)] = 5
    known = await keys.keys(pool, "t", prompt)
    assert known.keys == guessed.keys[:5] + guessed.keys[MEDIA_BLOCKS:]
    assert guessed.prompt_tokens - known.prompt_tokens == LINKED_TOKENS - 5 * BLOCK


async def test_many_media_have_no_more_keys_than_the_longest_prompt() -> None:
    prompt = chat_prompt({"messages": [user(*(image(str(number)) for number in range(400)), "x" * 400_000)]})
    pool = pool_of(Tokenizer(), max_prompt_tokens=BLOCK * 1000)
    made = await PromptKeys().keys(pool, "t", prompt)
    assert len(made.keys) == 1000


async def test_a_placeholder_written_by_a_client_is_text() -> None:
    engine_candidate = chat_prompt({"messages": [user(image("a"))]}).media[0].engine_candidate
    made = await keyed(user(f"{engine_candidate} {engine_candidate}", image("a"), "what is it?"))
    plain = await keyed(user("look", image("a"), "what is it?"))
    assert set(plain.keys) & set(made.keys)


async def test_a_prompt_that_the_engine_truncates_has_no_keys() -> None:
    made = await keyed(user(image("a"), "what is it?"), truncate_prompt_tokens=5)
    assert (made.keys, made.prompt_tokens, made.source) == ((), 5, "unmatched")


_part = st.one_of(st.text(max_size=40), st.sampled_from("abc").map(image))
_turn = st.lists(_part, min_size=1, max_size=4)


@given(st.lists(_turn, min_size=1, max_size=4), _turn)
async def test_a_longer_conversation_begins_with_the_keys_of_the_shorter_one(
    turns: list[list[Any]], further: list[Any]
) -> None:
    """All but those of the last block, which holds the end of the message list."""
    messages = [user(image("first")), *(user(*turn) for turn in turns)]
    one, two = await keyed(*messages), await keyed(*messages, user(*further))
    kept = len(one.keys) - 1
    assert two.keys[:kept] == one.keys[:kept]
    assert len(two.keys) >= kept
