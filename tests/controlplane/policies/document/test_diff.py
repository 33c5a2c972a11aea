"""A diff represents both documents completely: each can be restored from its lines."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given

from controlplane.policies.document.diff import ADDED, EQUAL, REMOVED, diff_lines, diff_runs
from controlplane.policies.document.paths import same_value
from controlplane.policies.document.text import completed
from tests.controlplane.policies.document.policy_documents import unhurried, valid_documents

DEFAULTS = completed({})


def side(lines: Any, *kinds: str) -> Any:
    """Restore the document of one side from the lines; commas are those of the newer side."""
    texts = [(f'"{line.name}": ' if line.name else "") + line.text for line in lines if line.kind in kinds]
    joined = ""
    for text in texts:
        follows = joined and joined[-1] not in "{[" and text[0] not in "}]"
        joined += ("," if follows else "") + text
    return json.loads(joined)


@unhurried
@given(valid_documents(partial=True), valid_documents(partial=True))
def test_both_documents_can_be_restored_from_the_lines(before: dict[str, Any], after: dict[str, Any]) -> None:
    lines = diff_lines(before, after)
    assert same_value(side(lines, EQUAL, REMOVED), before)
    assert same_value(side(lines, EQUAL, ADDED), after)


@unhurried
@given(valid_documents(partial=True), valid_documents(partial=True))
def test_line_numbers_of_each_side_have_no_gap(before: dict[str, Any], after: dict[str, Any]) -> None:
    lines = diff_lines(before, after)
    old = [line.old for line in lines if line.old is not None]
    new = [line.new for line in lines if line.new is not None]
    assert old == list(range(1, len(old) + 1))
    assert new == list(range(1, len(new) + 1))


@unhurried
@given(valid_documents(), valid_documents())
def test_runs_hold_all_lines_in_order_and_fold_only_unchanged_ones(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    runs = diff_runs(before, after)
    assert tuple(line for run in runs for line in run.lines) == diff_lines(before, after)
    assert all(line.kind == EQUAL for run in runs if run.folded for line in run.lines)


def test_only_the_changed_value_is_marked() -> None:
    before, after = ({**DEFAULTS, "order": {"name": name, "params": {}}} for name in ("late_last", "fifo"))
    changed = [line for line in diff_lines(before, after) if line.kind != EQUAL]
    assert [(line.sign, line.name, line.quote, line.bare, line.path) for line in changed] == [
        ("−", "name", '"', "late_last", "order.name"),
        ("+", "name", '"', "fifo", "order.name"),
    ]


def test_unchanged_lines_far_from_a_change_are_folded_with_their_count() -> None:
    runs = diff_runs(DEFAULTS, {**DEFAULTS, "reservation_ttl_s": 30})
    folds = [len(run.lines) for run in runs if run.folded]
    assert [run.folded for run in runs] == [True, False, True]
    assert min(folds) > 10


def test_equal_numbers_in_different_notations_are_unchanged() -> None:
    assert all(line.kind == EQUAL for line in diff_lines({"ttft_slo_s": 5}, {"ttft_slo_s": 5.0}))


def test_equal_documents_are_one_fold() -> None:
    (run,) = diff_runs(DEFAULTS, DEFAULTS)
    assert run.folded
