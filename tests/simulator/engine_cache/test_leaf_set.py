from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine_cache.leaf_set import LeafSet

MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("unmarked", "marked", "remove")), st.integers(0, 12)), st.just(("unmark_all", 0))
    ),
    max_size=80,
)


@given(MOVES)
def test_marked_and_unmarked_leaves_match_two_plain_sets(moves: list[tuple[str, int]]) -> None:
    leaves = LeafSet()
    parts: dict[str, set[int]] = {"unmarked": set(), "marked": set()}
    for move, key in moves:
        if move == "unmark_all":
            leaves.unmark_all()
            parts = {"unmarked": parts["unmarked"] | parts["marked"], "marked": set()}
        elif move == "remove":
            assert leaves.discard(key) == (key in parts["unmarked"] | parts["marked"])
            for part in parts.values():
                part.discard(key)
        elif key not in leaves:
            leaves.add(key, marked=move == "marked")
            parts[move].add(key)
        leaves.check()
        assert set(islice(leaves, leaves.unmarked)) == parts["unmarked"]
        assert set(leaves) == parts["unmarked"] | parts["marked"]


def test_the_unmarked_leaf_at_a_fraction_of_them_is_taken() -> None:
    leaves = LeafSet()
    for key in range(8):
        leaves.add(key, marked=key % 2 == 1)
    assert {leaves.take(share) for share in (0.99, 0.5, 0.0, 0.0)} == {0, 2, 4, 6}
    assert (set(leaves), leaves.unmarked) == ({1, 3, 5, 7}, 0)
    leaves.check()
    leaves.clear()
    assert (len(leaves), leaves.unmarked, 1 in leaves) == (0, 0, False)
