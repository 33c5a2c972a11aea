"""A searched match equals the scanned one if prefixes are held without gaps, with far fewer lookups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvstore.index.prefix_index import PrefixIndex
from kvstore.index.prefix_match import LONG, NO_MATCH, PrefixMatch, search_match, walk_match

LENGTH = 8192


def walked(keys: tuple[int, ...], among: int, held: dict[int, int]) -> PrefixMatch:
    depths: dict[int, int] = {}
    for target in range(among.bit_length()):
        depth = 0
        while among >> target & 1 and depth < len(keys) and held.get(keys[depth], 0) >> target & 1:
            depth += 1
        if depth:
            depths[depth] = depths.get(depth, 0) | 1 << target
    return PrefixMatch(tuple(sorted(depths.items(), reverse=True)))


@given(st.integers(1, 200), st.lists(st.integers(0, 200), max_size=12), st.integers(0, 4095))
def test_a_searched_match_equals_the_walked_one(length: int, depths: list[int], among: int) -> None:
    keys = tuple(range(1000, 1000 + length))
    held: dict[int, int] = {}
    for target, depth in enumerate(depths):
        for key in keys[:depth]:
            held[key] = held.get(key, 0) | 1 << target
    assert search_match(keys, among, lambda key: held.get(key, 0)) == walked(keys, among, held)


def test_a_prompt_of_128k_tokens_needs_few_lookups() -> None:
    keys = tuple(range(1, LENGTH + 1))
    asked: list[int] = []

    def held(key: int) -> int:
        asked.append(key)
        return (key <= 5000) | (key <= 8000) << 1 | 1 << 2

    assert search_match(keys, 0b1111, held).groups == ((LENGTH, 4), (8000, 2), (5000, 1))
    assert len(asked) < 100


def test_the_index_matches_long_prompts_by_search_and_short_ones_by_walk_alike() -> None:
    index = PrefixIndex()
    keys = tuple(range(1, 2 * LONG + 1))
    index.store(0, keys[:10])
    index.store(1, keys[: LONG + 5])
    assert index.match(keys, 0b111).groups == ((LONG + 5, 2), (10, 1))
    assert index.match(keys[:20], 0b111).groups == ((20, 2), (10, 1))
    assert index.match(tuple(range(5000, 5200)), 0b111) is NO_MATCH


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=40),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=40),
    st.integers(0, 15),
)
def test_a_walk_is_exact_even_if_blocks_are_missing(
    length: int, resident: list[tuple[int, int]], coming: list[tuple[int, int]], among: int
) -> None:
    keys = tuple(range(1000, 1000 + length))
    tables: tuple[dict[int, int], dict[int, int]] = ({}, {})
    both: dict[int, int] = {}
    for table, pairs in zip(tables, (resident, coming), strict=True):
        for target, block in pairs:
            # Far beyond the small integers of which Python keeps one object.
            bit = 1 << target + 20
            table[1000 + block] = table.get(1000 + block, 0) | bit
            both[1000 + block] = both.get(1000 + block, 0) | bit
    assert walk_match(keys, among << 20, *tables) == walked(keys, among << 20, both)


def test_blocks_stored_together_share_one_holders_object() -> None:
    index = PrefixIndex()
    keys = tuple(range(1, 21))
    for target in (40, 50):
        index.store(target, keys)
    assert len({id(index.table[key]) for key in keys}) == 1
