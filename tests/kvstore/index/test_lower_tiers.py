"""Lower tiers against a simple model: blocks in an engine's memory, then blocks that its tiers add."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvstore.index.lower_tiers import CPU, DISK, EXTERNAL, TIERS, LowerTiers
from kvstore.index.prefix_index import ENTRY_BYTES, PrefixIndex

KEYS = tuple(range(100, 108))
TARGETS = 3
Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["memory", "gone", *TIERS, *(f"-{tier}" for tier in TIERS), "clear"]),
        st.integers(0, TARGETS - 1),
        st.integers(0, len(KEYS)),
        st.integers(0, len(KEYS)),
    ),
    max_size=40,
)


@given(STEPS)
def test_reach_equals_the_blocks_that_each_engine_would_load(steps: list[Step]) -> None:
    index = PrefixIndex()
    memory: list[set[int]] = [set() for _ in range(TARGETS)]
    below: list[dict[str, set[int]]] = [{tier: set() for tier in TIERS} for _ in range(TARGETS)]
    for what, target, first, end in steps:
        keys = KEYS[first:end]
        if what == "memory":
            index.store(target, keys)
            memory[target] |= set(keys)
        elif what == "gone":
            index.remove(target, keys)
            memory[target] -= set(keys)
        elif what == "clear":
            index.clear(target)
            memory[target].clear()
            for held in below[target].values():
                held.clear()
        else:
            index.change_tier(target, what.lstrip("-"), not what.startswith("-"), keys)
            held = below[target][what.lstrip("-")]
            (held.difference_update if what.startswith("-") else held.update)(keys)
    index.check()
    among = (1 << TARGETS) - 1
    match = index.match(KEYS, among)
    reached = {
        target: ends
        for ends, mask in index.tiers.reach(match, KEYS, among)
        for target in range(TARGETS)
        if mask >> target & 1
    }
    for target in range(TARGETS):
        ends = [_run(memory[target], 0)]
        usable: set[int] = set()
        for tier in TIERS:
            usable |= below[target][tier]
            ends.append(_run(usable, ends[-1]))
        assert reached[target] == tuple(ends)
        assert match.blocks(target) == ends[0], "a match counts memory alone"


def _run(held: set[int], first: int) -> int:
    end = first
    while end < len(KEYS) and KEYS[end] in held:
        end += 1
    return end


def test_a_fleet_without_tiers_has_no_tier_targets() -> None:
    index = PrefixIndex()
    index.store(0, KEYS)
    assert index.tiers.targets == 0
    index.change_tier(0, CPU, True, KEYS)
    assert index.tiers.targets == 1
    index.clear(0)
    assert (index.tiers.targets, len(index.tiers)) == (0, 0)


def test_tiers_share_the_budget_and_the_larger_part_evicts() -> None:
    index = PrefixIndex(max_bytes=100 * ENTRY_BYTES)
    index.store(0, list(range(40)))
    for first in range(0, 300, 10):
        index.change_tier(0, DISK, True, list(range(first, first + 10)))
        index.check()
    assert len(index) == 40, "a tier that is far larger pushes out nothing that is in memory"
    assert 50 <= len(index.tiers) <= 60
    index.store(0, list(range(1000, 1100)))
    index.check()


def test_the_oldest_entries_of_the_largest_table_are_evicted_first() -> None:
    tiers = LowerTiers()
    tiers.store(0, EXTERNAL, range(4))
    tiers.store(0, CPU, [9])
    tiers.store(0, EXTERNAL, [0])
    tiers.evict(2)
    assert [held for held, _ in tiers.reach(PrefixIndex().match((), 1), (1,), 1)] == [(0, 0, 0, 0)]
    assert [held for held, _ in tiers.reach(PrefixIndex().match((), 1), (3, 0, 9), 1)] == [(0, 0, 0, 3)]
    tiers.evict(9)
    assert len(tiers) == 0
