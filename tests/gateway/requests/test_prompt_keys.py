"""Keys of prompts: equal for equal beginnings, different between tenants, and requested once.

A prompt's beginning is known from earlier prompts that share it, in bounded memory.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.isolation_domains import IsolationDomains
from gateway.contracts.snapshot import PoolEntry
from gateway.pools.engines.health_probe import EngineUnreachableError
from gateway.pools.pool.live_pool import LivePool
from gateway.pools.pool.pool_progress import PoolProgress
from gateway.requests.formats.prompt import (
    ChatPrompt,
    HashedPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
    chat_prompt,
    completion_prompt,
)
from gateway.requests.known_prefixes import CHUNK_BYTES, KnownPrefixes
from gateway.requests.prompt_keys import PromptKeys
from gateway.server.http.json_body import BadBodyError
from kvstore.keys.block_keys import key_seed, rekey_hashes, token_block_keys
from kvstore.keys.keyring import Keyring


class Tokenizer:
    """Return one token per byte; counts its calls, and answers while `free` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.extra: Any = None
        self.models: set[str] = set()
        self.fails = False
        self.free = asyncio.Event()
        self.free.set()

    async def tokenize(self, prompt: str | Sequence[Any], *, extra: Any = None, model: str = "") -> array[int]:
        """Return the tokens."""
        self.calls += 1
        self.extra = extra
        self.models.add(model)
        await asyncio.sleep(0)
        await self.free.wait()
        if self.fails:
            raise EngineUnreachableError("connection refused", refused=True)
        text = prompt if isinstance(prompt, str) else str(list(prompt))
        return array("I", list(text.encode()))


def pool_of(*tokenizers: Tokenizer, **entry: Any) -> LivePool:
    made = PoolEntry(
        **{
            "pool_id": "p",
            "name": "p",
            "region": "r",
            "served_model": "m",
            "block_tokens": 4,
            "block_bytes": 8,
            **entry,
        }
    )
    engines = {
        f"e{number}": SimpleNamespace(
            entry=SimpleNamespace(engine_id=f"e{number}"), breaker=SimpleNamespace(accepts=True), adapter=tokenizer
        )
        for number, tokenizer in enumerate(tokenizers)
    }

    def seed(domain: str, lora: str = "") -> int:
        return key_seed(b"secret", made.served_model, lora, domain)

    names = SimpleNamespace(engines=lambda lora: frozenset(list(engines)[-1:] if lora == "sql" else ()))
    domains = IsolationDomains(Keyring.of(b"secret").used, made)
    lag = SimpleNamespace(vouches=lambda _since_s, _now: True, lost_s=lambda _since_s, _now: 0.0)
    facts = {"entry": made, "engines": engines, "seed": seed, "names": names, "domains": domains, "lag": lag}
    facts["progress"] = PoolProgress()
    return cast("LivePool", SimpleNamespace(**facts, one_tenant=False))


CHAT = ChatPrompt([{"role": "user", "content": "hello there"}], {})


async def test_token_ids_and_text_of_the_same_tokens_have_equal_keys() -> None:
    pool, keys = pool_of(Tokenizer()), PromptKeys()
    text = await keys.keys(pool, "t", TextPrompt("abcdefghij"))
    tokens = await keys.keys(pool, "t", TokenPrompt(list(b"abcdefghij")))
    assert text.keys == tokens.keys == token_block_keys(pool.seed("t"), list(b"abcdefghij"), 4)
    assert (text.prompt_tokens, len(text.keys)) == (10, 2)
    assert (text.source, tokens.source) == ("tokenized", "tokens")


async def test_equal_prompts_are_tokenized_once() -> None:
    tokenizer, keys = Tokenizer(), PromptKeys()
    pool = pool_of(tokenizer)
    made = await asyncio.gather(*(keys.keys(pool, "t", CHAT) for _ in range(10)))
    again = await keys.keys(pool, "t", CHAT)
    assert tokenizer.calls == 1
    assert {item.keys for item in made} == {again.keys}
    assert again.source == "remembered"
    keys.check()


@pytest.mark.parametrize(
    "other",
    [
        ChatPrompt([{"role": "user", "content": "hello there!"}], {}),
        ChatPrompt([{"role": "system", "content": "hello there"}], {}),
        ChatPrompt([{"role": "user", "content": "hello there"}], {"tools": []}),
        TextPrompt("hello there"),
    ],
)
async def test_any_template_input_makes_a_different_prompt(other: Prompt) -> None:
    tokenizer, keys = Tokenizer(), PromptKeys()
    pool = pool_of(tokenizer)
    await keys.keys(pool, "t", CHAT)
    await keys.keys(pool, "t", other)
    assert tokenizer.calls == 2


async def test_a_text_that_equals_a_remembered_chat_is_not_a_chat() -> None:
    tokenizer, keys = Tokenizer(), PromptKeys()
    pool = pool_of(tokenizer)
    await keys.keys(pool, "t", CHAT)
    await keys.keys(pool, "t", TextPrompt('[{},[{"content":"hello there","role":"user"}]]'))
    assert tokenizer.calls == 2


async def test_template_inputs_are_sent_to_the_tokenizer() -> None:
    tokenizer = Tokenizer()
    body = {"messages": CHAT.messages, "tools": [{"a": 1}], "chat_template_kwargs": {"b": 2}, "temperature": 1}
    await PromptKeys().keys(pool_of(tokenizer), "t", chat_prompt(body))
    assert tokenizer.extra == {"tools": [{"a": 1}], "chat_template_kwargs": {"b": 2}}


async def test_prompts_of_two_domains_share_no_key() -> None:
    pool, keys = pool_of(Tokenizer()), PromptKeys()
    mine, other = await keys.keys(pool, "a", CHAT), await keys.keys(pool, "b", CHAT)
    again = await keys.keys(pool, "a", CHAT)
    assert not set(mine.keys) & set(other.keys)
    assert again.keys == mine.keys


async def test_adapter_prompts_are_tokenized_by_engines_with_it_and_share_no_base_key() -> None:
    plain, able = Tokenizer(), Tokenizer()
    pool, keys = pool_of(plain, able), PromptKeys()
    chats = [ChatPrompt([{"role": "user", "content": text}], {}) for text in "pqr"]
    adapted = [await keys.keys(pool, "a", chat, lora="sql") for chat in chats]
    assert (plain.calls, able.calls, able.models) == (0, 3, {"sql"})
    base = [await keys.keys(pool, "a", chat) for chat in chats]
    assert not {key for item in adapted for key in item.keys} & {key for item in base for key in item.keys}
    assert all(item.keys and item.source == "tokenized" for item in (*adapted, *base))


async def test_another_engine_is_asked_when_one_fails() -> None:
    broken, whole = Tokenizer(), Tokenizer()
    broken.fails = True
    keys, pool = PromptKeys(), pool_of(broken, whole)
    for number in range(4):
        assert (await keys.keys(pool, "t", TextPrompt(f"prompt {number}"))).source == "tokenized"
    assert whole.calls == 4
    assert broken.calls >= 1


async def test_without_a_tokenizer_there_are_no_keys_and_an_estimate() -> None:
    broken = Tokenizer()
    broken.fails = True
    for pool in (pool_of(broken), pool_of()):
        keyed = await PromptKeys().keys(pool, "t", TextPrompt("x" * 400))
        assert (keyed.keys, keyed.prompt_tokens, keyed.source) == ((), 100, "none")


async def test_a_failed_tokenizer_is_asked_again_next_time() -> None:
    tokenizer, keys = Tokenizer(), PromptKeys()
    pool = pool_of(tokenizer)
    tokenizer.fails = True
    await keys.keys(pool, "t", CHAT)
    tokenizer.fails = False
    assert (await keys.keys(pool, "t", CHAT)).source == "tokenized"


async def test_a_cancelled_caller_does_not_cancel_the_answer_for_others() -> None:
    tokenizer, keys = Tokenizer(), PromptKeys()
    pool = pool_of(tokenizer)
    first = asyncio.create_task(keys.keys(pool, "t", CHAT))
    second = asyncio.create_task(keys.keys(pool, "t", CHAT))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).source == "tokenized"
    assert tokenizer.calls == 1


async def test_while_the_tokenizer_is_late_a_known_prefix_is_sufficient() -> None:
    pool, keys = pool_of(tokenizer := Tokenizer()), PromptKeys(patience=0.0)
    shared = "The quick brown fox. " * 200
    before = await keys.keys(pool, "t", TextPrompt(shared + "first"))
    tokenizer.free.clear()
    asked = TextPrompt(shared + "second " * 100)
    known = await keys.keys(pool, "t", asked)
    assert known.source == "prefix"
    whole = len(shared) // CHUNK_BYTES * CHUNK_BYTES // pool.entry.block_tokens
    assert known.keys == before.keys[:whole]
    assert known.prompt_tokens == len(asked.text)
    # The answer still comes, and counts from then on.
    tokenizer.free.set()
    await asyncio.sleep(0.01)
    later = await keys.keys(pool, "t", asked)
    assert (later.source, later.keys[:whole]) == ("remembered", known.keys)
    keys.check()


async def test_without_a_known_prefix_a_late_tokenizer_is_awaited() -> None:
    pool, keys = pool_of(tokenizer := Tokenizer()), PromptKeys(patience=0.0)
    text = "The quick brown fox. " * 200
    await keys.keys(pool, "t", TextPrompt(text))
    tokenizer.free.clear()
    waiting = [
        asyncio.create_task(keys.keys(pool, domain, TextPrompt(asked)))
        for domain, asked in (("t", "Another text. " * 200), ("another tenant", text + "!"))
    ]
    await asyncio.sleep(0.01)
    assert not any(item.done() for item in waiting)
    tokenizer.free.set()
    assert [(await item).source for item in waiting] == ["tokenized", "tokenized"]


async def test_a_known_prefix_is_used_if_the_tokenizer_fails() -> None:
    pool, keys = pool_of(tokenizer := Tokenizer()), PromptKeys()
    text = "The quick brown fox. " * 200
    await keys.keys(pool, "t", TextPrompt(text))
    tokenizer.fails = True
    assert (await keys.keys(pool, "t", TextPrompt(text + "?"))).source == "prefix"
    assert pool.progress.faults("e0").tokenizer_late == 1


async def test_a_prompt_names_the_engines_whose_tokenizers_it_waited_for() -> None:
    pool, keys = pool_of(fine := Tokenizer(), frozen := Tokenizer()), PromptKeys(patience=0.001)
    frozen.fails = True
    frozen.free.clear()
    waiting = [asyncio.create_task(keys.keys(pool, "t", TextPrompt("hello"))) for _ in range(2)]
    await asyncio.sleep(0.02)
    frozen.free.set()
    for task in waiting:
        (first, first_s), (second, _) = (await task).tokenizers
        assert (first, second) == ("e1", "e0")
        assert first_s >= 0.015
    assert (frozen.calls, fine.calls) == (1, 1)
    faults = pool.progress.faults("e1")
    assert (faults.tokenizer_late, pool.progress.faults("e0").tokenizer_late) == (1, 0)
    assert faults.tokenizer_late_s >= 0.015
    assert (await keys.keys(pool, "t", TextPrompt("hello"))).tokenizers == ()
    # A pause of the gateway itself is no wait for an engine.
    pool.lag.lost_s = lambda since_s, now: now - since_s  # type: ignore[method-assign]
    assert [seconds for _, seconds in (await keys.keys(pool, "t", TextPrompt("other"))).tokenizers] == [0.0]


async def test_approximate_pools_ask_no_engine_and_share_keys_of_equal_beginnings() -> None:
    tokenizer, keys = Tokenizer(), PromptKeys()
    pool = pool_of(tokenizer, key_source="approximate")
    begin = [{"role": "system", "content": "s" * 64}]
    one = await keys.keys(pool, "t", ChatPrompt([*begin, {"role": "user", "content": "a"}], {}))
    two = await keys.keys(pool, "t", ChatPrompt([*begin, {"role": "user", "content": "b"}], {}))
    shared = [a == b for a, b in zip(one.keys, two.keys, strict=False)]
    assert shared[:8] == [True] * 8
    assert one.keys != two.keys
    assert tokenizer.calls == 0
    text = await keys.keys(pool, "t", TextPrompt("é" * 40))
    assert (text.prompt_tokens, len(text.keys), text.source) == (40, 10, "bytes")


async def test_block_hashes_are_rekeyed() -> None:
    pool = pool_of()
    keyed = await PromptKeys().keys(pool, "t", HashedPrompt([1, 2, 3], None))
    assert keyed.keys == rekey_hashes(pool.seed("t"), [1, 2, 3])
    assert keyed.prompt_tokens == 12


async def test_remembered_keys_are_bounded() -> None:
    keys, pool = PromptKeys(max_prompts=5, max_keys=12), pool_of(Tokenizer())
    for number in range(30):
        await keys.keys(pool, "t", TextPrompt("x" * (number % 20) + f"{number:04}"))
        keys.check()
    await keys.keys(pool, "t", TextPrompt("y" * 400))
    keys.check()


async def test_remembered_keys_contain_no_text() -> None:
    keys, pool = PromptKeys(), pool_of(Tokenizer())
    await keys.keys(pool, "t", TextPrompt("CANARY" * 10))
    assert "CANARY" not in repr(vars(keys))
    assert str(list(b"CANARY"))[1:-1] not in repr(vars(keys))


@pytest.mark.parametrize(
    "prompt", [None, 5, [], {}, [None], [-1], [2**32], [[]], [["a"]], [1, "a"], ["a", 1], ["a", [1]], [[1], "a"]]
)
def test_malformed_prompts_are_rejected(prompt: object) -> None:
    if prompt == [[]]:
        assert completion_prompt(prompt) == TokenPrompt([])
        return
    with pytest.raises(BadBodyError):
        completion_prompt(prompt)


@pytest.mark.parametrize("key_source", ["exact", "approximate"])
async def test_all_prompts_of_a_list_count_as_work_and_the_first_decides_the_route(key_source: str) -> None:
    pool, keys = pool_of(Tokenizer(), key_source=key_source), PromptKeys()
    alone = await keys.keys(pool, "t", completion_prompt("abcdefgh" * 16))
    listed = await keys.keys(pool, "t", completion_prompt(["abcdefgh" * 16, "x" * 256, "yz"]))
    assert listed.keys == alone.keys
    assert listed.prompt_tokens == alone.prompt_tokens * (128 + 258) // 128
    tokens = await keys.keys(pool, "t", completion_prompt([[1] * 40, [2] * 20, [3] * 7]))
    assert (len(tokens.keys), tokens.prompt_tokens) == (39 // pool.entry.block_tokens, 67)


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
async def test_the_block_of_the_last_token_has_no_key_because_engines_recompute_it(tokens: int, blocks: int) -> None:
    pool, keys = pool_of(Tokenizer()), PromptKeys()
    assert pool.entry.block_tokens == 4
    assert len((await keys.keys(pool, "t", TokenPrompt([1] * tokens))).keys) == blocks
    assert len((await keys.keys(pool, "t", TextPrompt("a" * tokens))).keys) == blocks


async def test_remembered_keys_use_little_more_than_eight_bytes_each() -> None:
    keys, pool = PromptKeys(), pool_of(Tokenizer())
    texts = [f"{number:04}" * 5000 for number in range(20)]
    tracemalloc.start()
    try:
        for text in texts:
            await keys.keys(pool, "t", TextPrompt(text))
        # Chunks of prompts have a bound of their own.
        keys.prefixes = KnownPrefixes()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert keys._kept_keys == 20 * 4999
    assert held < 12 * keys._kept_keys
    keys.check()


BLOCK = 4


def _learned(known: KnownPrefixes, data: bytes, tokens: list[int]) -> tuple[int, ...]:
    keys = token_block_keys(1, tokens, BLOCK)
    known.learn(b"p", 1, data, BLOCK, keys, len(tokens))
    return keys


def test_a_longer_prompt_extends_the_known_prefix() -> None:
    known, data = KnownPrefixes(), bytes(range(256)) * 12
    short = _learned(known, data[: 2 * CHUNK_BYTES], list(range(2 * CHUNK_BYTES)))
    prefix = known.find(b"p", 1, data, BLOCK)
    assert prefix is not None
    assert (prefix.keys, prefix.prompt_tokens) == (short, len(data))
    whole = _learned(known, data, list(range(len(data))))
    prefix = known.find(b"p", 1, data + b"more", BLOCK)
    assert prefix is not None
    assert prefix.keys == whole


def test_another_pool_seed_or_beginning_is_unknown() -> None:
    known, data = KnownPrefixes(), bytes(range(256)) * 4
    _learned(known, data, list(range(len(data))))
    assert known.find(b"p", 1, data, BLOCK) is not None
    assert known.find(b"q", 1, data, BLOCK) is None
    assert known.find(b"p", 2, data, BLOCK) is None
    assert known.find(b"p", 1, b"x" + data, BLOCK) is None
    assert known.find(b"p", 1, data[: CHUNK_BYTES - 1], BLOCK) is None


def test_the_least_recently_used_chunks_are_evicted() -> None:
    known = KnownPrefixes(max_chunks=3)
    texts = [bytes([number]) * CHUNK_BYTES for number in range(4)]
    for text in texts[:3]:
        _learned(known, text, list(text))
    assert known.find(b"p", 1, texts[0], BLOCK) is not None
    _learned(known, texts[3], list(texts[3]))
    assert len(known) == 3
    assert [known.find(b"p", 1, text, BLOCK) is not None for text in texts] == [True, False, True, True]
    known.check()


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), max_size=6), st.floats(0.05, 1.0)),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(0, 2), max_size=6),
)
def test_prompts_that_share_their_first_chunks_share_keys(
    learned: list[tuple[list[int], float]], asked: list[int]
) -> None:
    known, keys_by_text = KnownPrefixes(max_chunks=64), {}
    for parts, per_byte in learned:
        data = b"".join(bytes([part]) * CHUNK_BYTES for part in parts)
        tokens = [part for part in parts for _ in range(int(CHUNK_BYTES * per_byte))]
        keys_by_text[data] = _learned(known, data, tokens)
    data = b"".join(bytes([part]) * CHUNK_BYTES for part in asked)
    prefix = known.find(b"p", 1, data, BLOCK)
    if prefix is not None:
        # Each key was seen at its own place of a prompt with the same first chunk.
        for index, key in enumerate(prefix.keys):
            assert any(
                len(keys) > index and keys[index] == key and text[:CHUNK_BYTES] == data[:CHUNK_BYTES]
                for text, keys in keys_by_text.items()
            )
        assert prefix.prompt_tokens > len(prefix.keys) * BLOCK
    known.check()
