from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.keys.block_keys import byte_block_keys, extend_key, key_seed, pack_tokens, rekey_hashes, token_block_keys

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=200)


def test_seeds_depend_on_each_of_their_parts() -> None:
    seeds = {
        key_seed(b"s", "model", "lora", "domain"),
        key_seed(b"t", "model", "lora", "domain"),
        key_seed(b"s", "model2", "lora", "domain"),
        key_seed(b"s", "model", "lora2", "domain"),
        key_seed(b"s", "model", "lora", "domain2"),
        key_seed(b"s", "modell", "ora", "domain"),
    }
    assert len(seeds) == 6


@given(TOKENS, TOKENS, st.integers(1, 32))
def test_equal_prefixes_have_equal_keys_up_to_where_they_diverge(
    first: list[int], second: list[int], block: int
) -> None:
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    one, two = token_block_keys(7, first, block), token_block_keys(7, second, block)
    full = shared // block
    assert one[:full] == two[:full]
    assert not set(one[full:]) & set(two[full:])


@given(TOKENS, st.integers(1, 32))
def test_a_list_and_an_array_of_the_same_tokens_have_equal_keys(tokens: list[int], block: int) -> None:
    assert token_block_keys(1, tokens, block) == token_block_keys(1, array("I", tokens), block)


def test_only_full_blocks_have_a_key() -> None:
    assert len(token_block_keys(1, list(range(1023)), 512)) == 1
    assert len(token_block_keys(1, list(range(1024)), 512)) == 2


def test_extending_block_by_block_gives_the_same_keys() -> None:
    tokens = list(range(64))
    parent, keys = 9, []
    for start in range(0, 64, 16):
        parent = extend_key(parent, pack_tokens(tokens[start : start + 16]))
        keys.append(parent)
    assert tuple(keys) == token_block_keys(9, tokens, 16)


def test_rekeyed_hashes_are_salted_and_accept_signed_ones() -> None:
    assert rekey_hashes(1, [5, 6]) != rekey_hashes(2, [5, 6])
    assert rekey_hashes(1, [-1]) == rekey_hashes(1, [2**64 - 1])
    for outside in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError):
            rekey_hashes(1, [outside])


def test_a_block_size_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        byte_block_keys(1, b"abc", 0)
