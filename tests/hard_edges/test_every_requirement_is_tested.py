"""docs/reliability.md against the tests that it names: no requirement may lose its proof unnoticed."""

from __future__ import annotations

import re

import pytest

from tests.named_tests import ROOT, assert_named_tests_can_fail

LATER = {19, 20, 21, 29, 41, 49}
"""What waits for regions, advisories, the store and a second release."""
_ROW = re.compile(r"^\| R(\d+) \| (\w+) \|(.*?)\| .+ \|$", re.MULTILINE)

ROWS = {
    int(number): (state, tests)
    for number, state, tests in _ROW.findall((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
}


def test_the_table_has_each_requirement_once_with_a_state_of_three() -> None:
    assert sorted(ROWS) == list(range(1, 51))
    assert {state for state, _ in ROWS.values()} <= {"holds", "partly", "later"}


def test_only_what_waits_for_a_part_that_is_not_there_comes_later() -> None:
    assert {number for number, (state, _) in ROWS.items() if state == "later"} <= LATER


@pytest.mark.parametrize("number", [number for number, (state, _) in ROWS.items() if state != "later"])
def test_a_requirement_names_tests_that_can_fail(number: int) -> None:
    assert_named_tests_can_fail(ROWS[number][1], f"R{number}")
