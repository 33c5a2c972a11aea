"""The tree of shared prefixes: its runs of blocks, its counts and its limits."""

from __future__ import annotations

from random import Random

from gateway.traffic.prefix_icicle import MAX_BLOCKS, icicle


def prompt(*names: str) -> tuple[int, ...]:
    """Return chained keys: each stands for the whole prefix."""
    return tuple(hash(names[: length + 1]) & (2**64 - 1) for length in range(len(names)))


def test_prompts_stay_together_until_they_part() -> None:
    shared = ("system", "tools", "manual")
    found = icicle([(prompt(*shared, "a", "x"), 3), (prompt(*shared, "b"), 2), (prompt("other"), 4)])
    shape = [(item.parent, item.level, item.first_block, item.last_block, item.requests) for item in found]
    assert shape == [(-1, 0, 1, 3, 5), (-1, 0, 1, 1, 4), (0, 1, 4, 5, 3), (0, 1, 4, 4, 2)]
    assert found[0].key == prompt(*shared)[-1]


def test_prefixes_of_single_requests_are_no_node() -> None:
    assert icicle([(prompt("a"), 1), (prompt("b"), 1)]) == []
    assert icicle([]) == []


def test_one_prompt_within_another_ends_the_run_of_both() -> None:
    found = icicle([(prompt("a", "b"), 2), (prompt("a", "b", "c"), 2)])
    assert [(item.last_block, item.requests) for item in found] == [(2, 4), (3, 2)]


def test_the_widest_find_room_and_a_parent_stands_before_its_children() -> None:
    rng = Random(3)
    prompts = [
        (prompt(*(f"{level}:{rng.randrange(3)}" for level in range(rng.randint(1, 90)))), rng.randint(1, 5))
        for _ in range(400)
    ]
    found = icicle(prompts, most=30)
    assert len(found) == 30
    for at, each in enumerate(found):
        assert each.parent < at
        assert each.first_block <= each.last_block <= MAX_BLOCKS
        children = [child for child in found if child.parent == at]
        assert sum(child.requests for child in children) <= each.requests
        if each.parent >= 0:
            assert each.first_block == found[each.parent].last_block + 1
            assert each.level == found[each.parent].level + 1
        assert each.requests == sum(weight for keys, weight in prompts if each.key in keys)
