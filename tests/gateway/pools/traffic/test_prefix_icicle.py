"""The tree of shared prefixes: its runs of blocks, its counts and its limits."""

from __future__ import annotations

from random import Random

from gateway.pools.traffic.prefix_icicle import MAX_BLOCKS, icicle


def prompt(*names: str) -> tuple[int, ...]:
    """Return chained keys: each identifies the whole prefix."""
    return tuple(hash(names[: length + 1]) & (2**64 - 1) for length in range(len(names)))


def test_prompts_stay_together_until_they_diverge() -> None:
    shared = ("system", "tools", "manual")
    prefixes = icicle([(prompt(*shared, "a", "x"), 3), (prompt(*shared, "b"), 2), (prompt("other"), 4)])
    shape = [(item.parent, item.level, item.first_block, item.last_block, item.requests) for item in prefixes]
    assert shape == [(-1, 0, 1, 3, 5), (-1, 0, 1, 1, 4), (0, 1, 4, 5, 3), (0, 1, 4, 4, 2)]
    assert prefixes[0].key == prompt(*shared)[-1]


def test_prefixes_of_a_single_request_are_not_nodes() -> None:
    assert icicle([(prompt("a"), 1), (prompt("b"), 1)]) == []
    assert icicle([]) == []


def test_a_prompt_that_is_a_prefix_of_another_ends_its_run() -> None:
    prefixes = icicle([(prompt("a", "b"), 2), (prompt("a", "b", "c"), 2)])
    assert [(item.last_block, item.requests) for item in prefixes] == [(2, 4), (3, 2)]


def test_the_widest_nodes_are_kept_and_parents_precede_children() -> None:
    rng = Random(3)
    prompts = [
        (prompt(*(f"{level}:{rng.randrange(3)}" for level in range(rng.randint(1, 90)))), rng.randint(1, 5))
        for _ in range(400)
    ]
    prefixes = icicle(prompts, most=30)
    assert len(prefixes) == 30
    for at, item in enumerate(prefixes):
        assert item.parent < at
        assert item.first_block <= item.last_block <= MAX_BLOCKS
        children = [child for child in prefixes if child.parent == at]
        assert sum(child.requests for child in children) <= item.requests
        if item.parent >= 0:
            assert item.first_block == prefixes[item.parent].last_block + 1
            assert item.level == prefixes[item.parent].level + 1
        assert item.requests == sum(weight for keys, weight in prompts if item.key in keys)
