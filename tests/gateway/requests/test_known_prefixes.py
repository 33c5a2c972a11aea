"""A prompt's beginning is known from earlier prompts that share it, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.known_prefixes import CHUNK_BYTES, KnownPrefixes
from kvstore.keys.block_keys import token_block_keys

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
