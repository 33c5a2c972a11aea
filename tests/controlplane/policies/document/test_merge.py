"""A merge of two changes requires a choice only if both changed the same path differently."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controlplane.policies.document.merge import (
    BASE,
    BOTH,
    CONFLICT,
    MINE,
    THEIRS,
    UnresolvedConflictError,
    changed_entries,
    changes_between,
    merged,
)
from controlplane.policies.document.paths import same_value, value_at
from controlplane.policies.document.problems import problems_of
from controlplane.policies.document.schema import path_text
from controlplane.policies.document.text import completed
from tests.controlplane.policies.document.policy_documents import goes_together, unhurried, valid_documents

DEFAULTS = completed({})
PLAIN = st.dictionaries(
    st.sampled_from("abcd"), st.integers(0, 3) | st.dictionaries(st.sampled_from("xy"), st.integers(0, 2)), max_size=4
)
DOCUMENTS = valid_documents(partial=True) | PLAIN


@unhurried
@given(DOCUMENTS, DOCUMENTS)
def test_unchanged_side_adopts_the_change_of_the_other(base: Any, changed: Any) -> None:
    assert same_value(merged(base, changed, base), changed)
    assert same_value(merged(base, base, changed), changed)


@unhurried
@given(DOCUMENTS, DOCUMENTS)
def test_equal_changes_are_no_conflict(base: Any, changed: Any) -> None:
    assert same_value(merged(base, changed, changed), changed)
    assert {entry.side for entry in changed_entries(base, changed, changed)} <= {BOTH}


@unhurried
@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_conflicts_are_equal_from_both_sides(base: Any, theirs: Any, mine: Any) -> None:
    def conflicts(*sides: Any) -> set[str]:
        return {path_text(entry.path) for entry in changed_entries(*sides) if entry.side == CONFLICT}

    assert conflicts(base, theirs, mine) == conflicts(base, mine, theirs)


@unhurried
@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_without_a_conflict_the_merge_holds_exactly_both_changes(base: Any, theirs: Any, mine: Any) -> None:
    entries = changed_entries(base, theirs, mine)
    assume(all(entry.side != CONFLICT for entry in entries))
    result = merged(base, theirs, mine)
    for entry in entries:
        wanted = entry.theirs if entry.side in (THEIRS, BOTH) else entry.mine
        assert same_value(value_at(result, entry.path), wanted)
    touched = {path_text(entry.path) for entry in changes_between(base, result)}
    assert touched <= {path_text(entry.path) for entry in entries}


@unhurried
@given(DOCUMENTS, DOCUMENTS, DOCUMENTS, st.sampled_from([THEIRS, MINE, BASE]))
def test_choosing_one_side_everywhere_gives_that_side(base: Any, theirs: Any, mine: Any, side: str) -> None:
    choices = {path_text(entry.path): side for entry in changed_entries(base, theirs, mine)}
    wanted = {THEIRS: theirs, MINE: mine, BASE: base}[side]
    assert same_value(merged(base, theirs, mine, choices), wanted)


@unhurried
@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_every_open_conflict_is_named_and_nothing_is_overwritten_silently(base: Any, theirs: Any, mine: Any) -> None:
    conflicts = [path_text(entry.path) for entry in changed_entries(base, theirs, mine) if entry.side == CONFLICT]
    assume(len(conflicts) > 1)
    with pytest.raises(UnresolvedConflictError) as caught:
        merged(base, theirs, mine, {conflicts[0]: MINE})
    assert caught.value.paths == tuple(conflicts[1:])


@unhurried
@given(valid_documents(), valid_documents(), valid_documents(), st.randoms(use_true_random=False))
def test_merge_of_valid_documents_is_invalid_only_if_its_rules_are_incompatible(
    base: Any, theirs: Any, mine: Any, random: Any
) -> None:
    choices = {path_text(entry.path): random.choice([THEIRS, MINE]) for entry in changed_entries(base, theirs, mine)}
    both = merged(base, theirs, mine, choices)
    assert bool(problems_of(both)) == (not goes_together(both))


def test_rule_with_another_name_is_merged_together_with_its_parameters() -> None:
    theirs = {**DEFAULTS, "placement": {"name": "dual_map", "params": {"key_blocks": 2, "rebalance": True}}}
    mine = {**DEFAULTS, "placement": {"name": "least_cost", "params": {"beta": 5}}}
    (entry,) = changed_entries(DEFAULTS, theirs, mine)
    assert (entry.path, entry.side) == (("placement",), CONFLICT)
    assert merged(DEFAULTS, theirs, mine, {"placement": MINE})["placement"] == mine["placement"]


def test_parameters_of_the_same_rule_merge_one_by_one() -> None:
    base = completed({"placement": {"name": "dual_map"}})
    theirs = completed({"placement": {"name": "dual_map", "params": {"key_blocks": 4}}})
    mine = completed({"placement": {"name": "dual_map", "params": {"rebalance": False}}})
    params = merged(base, theirs, mine)["placement"]["params"]
    assert params == {**base["placement"]["params"], "rebalance": False, "key_blocks": 4}


def test_unknown_choice_leaves_the_conflict_open() -> None:
    theirs, mine = {**DEFAULTS, "max_wait_s": 10}, {**DEFAULTS, "max_wait_s": 20}
    with pytest.raises(UnresolvedConflictError):
        merged(DEFAULTS, theirs, mine, {"max_wait_s": "whatever"})
