"""The three-way comparison of fields, for random sides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.manifests.three_way import ThreeWay
from controlplane.policies.document.schema import ABSENT

VALUES = st.dictionaries(st.sampled_from([("a",), ("b",), ("c", "d"), ("e",)]), st.integers(0, 2))
OTHERS = st.dictionaries(st.sampled_from(["one", "two"]), VALUES)
DEFAULT = 0


def stored_after(sides: ThreeWay) -> dict[tuple[str, ...], int]:
    after = {**sides.stored, **sides.to_set(lambda _path: DEFAULT)}
    return {path: value for path, value in after.items() if value is not ABSENT}


@given(VALUES, VALUES, VALUES, OTHERS)
def test_a_field_in_the_files_wins_and_the_next_comparison_is_empty(
    applied: dict, stored: dict, wanted: dict, others: dict
) -> None:
    sides = ThreeWay(applied, stored, wanted, others)
    after = stored_after(sides)
    assert after.items() >= wanted.items()
    again = ThreeWay(wanted, after, wanted, others)
    assert (again.to_set(lambda _path: DEFAULT), again.changed(after)) == ({}, [])


@given(VALUES, VALUES, VALUES, OTHERS)
def test_only_fields_of_the_files_change_and_conflicts_are_theirs(
    applied: dict, stored: dict, wanted: dict, others: dict
) -> None:
    sides = ThreeWay(applied, stored, wanted, others)
    for item in sides.changed(stored_after(sides)):
        assert item.path in {**applied, **wanted}
        seen = applied.get(item.path, ABSENT)
        foreign = item.path not in applied and any(fields.get(item.path) == item.before for fields in others.values())
        by_others = seen is not ABSENT and seen != stored.get(item.path, ABSENT)
        if item.before is not None:
            assert item.in_conflict == (item.path in wanted and (by_others or foreign))
        if item.path not in wanted:
            # A person's later value, and that of another manager, stay.
            assert not by_others
            assert not any(fields.get(item.path) == item.before for fields in others.values())
