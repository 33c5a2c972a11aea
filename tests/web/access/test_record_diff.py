"""Differences read well, lose nothing and stay bounded."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from web.access.record_diff import MAX_LINES, DiffLine, record_diff

values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def text(line: DiffLine) -> str:
    return line.head + line.changed + line.tail


def test_the_part_that_differs_is_marked() -> None:
    lines = record_diff({"order": "fifo"}, {"order": "slack"})
    assert [(line.kind, line.changed) for line in lines if line.kind != "same"] == [
        ("removed", "fifo"),
        ("added", "slack"),
    ]


def test_long_equal_runs_are_folded_with_their_count() -> None:
    before = {f"field{number:02}": number for number in range(40)}
    lines = record_diff(before, {**before, "field20": -1})
    assert [line.head for line in lines if line.kind == "folded"] == ["19 equal lines", "18 equal lines"]
    assert [line.new for line in lines if line.kind == "added"] == [22]


def test_what_came_and_what_went_is_whole() -> None:
    assert {line.kind for line in record_diff(None, {"a": 1})} == {"added"}
    assert {line.kind for line in record_diff({"a": 1}, None)} == {"removed"}
    assert record_diff(None, None) == []
    assert {line.kind for line in record_diff({"a": 1}, {"a": 1})} == {"same"}


def test_huge_values_are_cut() -> None:
    lines = record_diff(None, list(range(5 * MAX_LINES)))
    assert len(lines) == MAX_LINES + 1
    assert "more lines" in lines[-1].head


@settings(max_examples=200, deadline=None)
@given(before=values, after=values)
def test_both_sides_can_be_read_from_the_lines(before: object, after: object) -> None:
    lines = record_diff(before, after)
    if any(line.kind == "folded" for line in lines):
        return
    old = "\n".join(text(line) for line in lines if line.kind in ("same", "removed"))
    new = "\n".join(text(line) for line in lines if line.kind in ("same", "added"))
    assert old.splitlines() == ([] if before is None else json.dumps(before, indent=2, ensure_ascii=False).splitlines())
    assert new.splitlines() == ([] if after is None else json.dumps(after, indent=2, ensure_ascii=False).splitlines())
