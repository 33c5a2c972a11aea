"""docs/reliability.md names tests that exist and can fail for each requirement."""

from __future__ import annotations

import pytest

from bench.house.removals.removal import all_removals
from bench.house.removals.requirement_table import PATH, requirements
from tests.named_tests import assert_named_tests_can_fail

LATER = {"R49"}
"""What waits for a second release."""
PARTLY = {"R1", "R3", "R4", "R7", "R24", "R34"}
"""What a benchmark shows, or whose parts a removal survives (`make removals`)."""

ROWS = requirements(PATH.read_text(encoding="utf-8"))
REMOVALS = all_removals()


def test_table_lists_each_requirement_once_with_a_valid_state() -> None:
    assert sorted(ROWS) == sorted(f"R{number}" for number in range(1, 51))
    assert {row.state for row in ROWS.values()} <= {"holds", "partly", "later"}


def test_requirements_that_hold_do_not_regress() -> None:
    assert {name for name, row in ROWS.items() if row.state == "later"} <= LATER
    assert {name for name, row in ROWS.items() if row.state == "partly"} <= PARTLY


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.state != "later"])
def test_requirement_names_tests_that_can_fail(name: str) -> None:
    assert_named_tests_can_fail(ROWS[name].named, name)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.state != "later"])
def test_requirement_that_holds_has_removals_that_its_tests_notice(name: str) -> None:
    parts = REMOVALS[name]
    assert len(parts) >= 2
    assert len({part.part for part in parts}) == len(parts)
    assert {test for part in parts for test in part.tests} <= ROWS[name].tests.keys()
    unproved = [part.part for part in parts if part.unproved]
    assert not (ROWS[name].state == "holds" and unproved)
