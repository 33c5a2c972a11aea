"""docs/reliability.md against the tests that it names: no requirement may lose its proof unnoticed."""

from __future__ import annotations

import re

import pytest

from tests.named_tests import ROOT, assert_named_tests_can_fail

LATER = {49}
"""What waits for a second release."""
PARTLY = {1}
"""What a benchmark shows, or has yet to show, and no test."""
_ROW = re.compile(r"^\| R(\d+) \| (\w+) \|(.*?)\| .+ \|$", re.MULTILINE)

ROWS = {
    int(number): (state, tests)
    for number, state, tests in _ROW.findall((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
}


def test_the_table_has_each_requirement_once_with_a_state_of_three() -> None:
    assert sorted(ROWS) == list(range(1, 51))
    assert {state for state, _ in ROWS.values()} <= {"holds", "partly", "later"}


def test_what_holds_stays() -> None:
    assert {number for number, (state, _) in ROWS.items() if state == "later"} <= LATER
    assert {number for number, (state, _) in ROWS.items() if state == "partly"} <= PARTLY


@pytest.mark.parametrize("number", [number for number, (state, _) in ROWS.items() if state != "later"])
def test_a_requirement_names_tests_that_can_fail(number: int) -> None:
    assert_named_tests_can_fail(ROWS[number][1], f"R{number}")
