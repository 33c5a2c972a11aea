from hypothesis import given
from hypothesis import strategies as st

from kvstore.index.target_table import TargetTable


def test_a_released_bit_is_reused_only_after_a_sweep() -> None:
    table = TargetTable()
    assert (table.assign("a#1"), table.assign("b#1")) == (0, 1)
    assert table.release("a#1") == 0
    assert table.assign("a#2") == 2
    assert table.sweep() == [0]
    assert table.assign("c#1") == 0
    assert table.release("nobody") is None


@given(st.lists(st.tuples(st.sampled_from(["assign", "release", "sweep"]), st.sampled_from("abcde")), max_size=60))
def test_each_bit_is_always_in_exactly_one_state(steps: list[tuple[str, str]]) -> None:
    table = TargetTable()
    for verb, name in steps:
        if verb == "sweep":
            table.sweep()
        else:
            getattr(table, verb)(name)
        table.check()
