"""Keys get longer below hot prefixes and shorter again, and the tree agrees with its window."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.rings.prefix_hotness import PrefixHotness


def prompt(*prefix: int, own: int = 0) -> tuple[int, ...]:
    """Return a prompt of chained keys: equal prefixes give equal keys."""
    path = (*prefix, *(range(own, own + 4) if own else ()))
    return tuple(hash(path[: length + 1]) & (1 << 64) - 1 for length in range(len(path)))


def test_a_prefix_below_its_share_keeps_the_short_key() -> None:
    hotness = PrefixHotness(window=100)
    assert {hotness.observe(prompt(number % 20, 1, 2, 3), 8) for number in range(400)} == {2}
    hotness.check()


def test_a_hot_prefix_is_extended_to_where_its_requests_diverge() -> None:
    hotness = PrefixHotness(window=100)
    rng = Random(1)
    lengths = [
        hotness.observe(prompt(1, 2, 3, 4, 5, own=10 * number + 100), 8)
        if rng.random() < 0.5
        else hotness.observe(prompt(number, 1, 1), 8)
        for number in range(600)
    ]
    assert sorted(set(lengths[300:])) == [2, 6]
    hotness.check()


def test_a_cooled_prefix_gets_a_short_key_again() -> None:
    hotness = PrefixHotness(window=100)
    for number in range(200):
        hotness.observe(prompt(1, 2, 3, own=10 * number + 100), 8)
    assert hotness.blocks(prompt(1, 2, 3, own=7)) == 4
    for number in range(95):
        hotness.observe(prompt(number, 5, 6), 8)
    hotness.observe(prompt(1, 2, 3, own=9), 8)
    assert hotness.blocks(prompt(1, 2, 3, own=7)) == 2
    hotness.check()


def test_between_hot_and_cold_the_key_length_stays() -> None:
    hotness = PrefixHotness(window=100)
    for number in range(200):
        hotness.observe(prompt(1, 2, 3, own=10 * number + 100), 8)
    # 20 of 100 requests: under 2/8, over 1/8.
    for number in range(400):
        hotness.observe(prompt(1, 2, 3, own=10 * number + 5000) if number % 5 == 0 else prompt(number, 5, 6), 8)
    assert hotness.blocks(prompt(1, 2, 3, own=7)) == 4


def test_more_engines_make_less_traffic_hot() -> None:
    few, many = PrefixHotness(window=100), PrefixHotness(window=100)
    for number in range(400):
        keys = prompt(1, 2, own=10 * number + 100) if number % 5 == 0 else prompt(number, 5, 6)
        few.observe(keys, 4)
        many.observe(keys, 32)
    assert (few.blocks(prompt(1, 2, own=7)), many.blocks(prompt(1, 2, own=7))) == (2, 3)


def test_short_prompts_are_keyed_whole_and_depth_is_bounded() -> None:
    hotness = PrefixHotness(window=50, max_blocks=3)
    assert [hotness.observe(prompt(1), 2), hotness.observe((), 2), hotness.observe(prompt(1, 2), 2)] == [1, 0, 2]
    for _ in range(200):
        hotness.observe(prompt(1, 2, 3, 4, 5, 6), 8)
    assert hotness.blocks(prompt(1, 2, 3, 4, 5, 6)) == 3
    hotness.check()


def test_invalid_sizes_are_rejected() -> None:
    for wrong in ({"window": 0}, {"least_blocks": 0}, {"least_blocks": 5, "max_blocks": 4}):
        with pytest.raises(ValueError, match="no tree"):
            PrefixHotness(**wrong)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=8), st.integers(1, 12)), max_size=120), st.integers(1, 20)
)
@settings(max_examples=40, deadline=None)
def test_the_tree_agrees_with_its_window_for_any_prompts(requests: list[tuple[list[int], int]], window: int) -> None:
    hotness = PrefixHotness(window=window, max_blocks=6)
    for path, engines in requests:
        keys = prompt(*path)
        before = hotness.blocks(keys)
        assert hotness.observe(keys, engines) == before <= len(keys)
        hotness.check()
    assert len(hotness) <= window


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), max_size=6), st.booleans()), max_size=120))
@settings(max_examples=40, deadline=None)
def test_peeking_changes_nothing_whichever_prompt_is_counted_next(steps: list[tuple[list[int], bool]]) -> None:
    peeked, plain = PrefixHotness(window=15, max_blocks=5), PrefixHotness(window=15, max_blocks=5)
    last = prompt(0)
    for path, counts_last in steps:
        keys = prompt(*path)
        peeked.blocks(last)
        peeked.blocks(keys)
        counted = last if counts_last else keys
        assert peeked.observe(counted, 8) == plain.observe(counted, 8)
        peeked.check()
        last = keys
