"""docs/reliability.md against the tests that it names: no requirement may lose its proof unnoticed."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LATER = {19, 20, 21, 29, 41, 49}
"""What waits for regions, advisories, the store and a second release."""
_ROW = re.compile(r"^\| R(\d+) \| (\w+) \|(.*?)\| .+ \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

ROWS = {
    int(number): (state, _TEST.findall(tests))
    for number, state, tests in _ROW.findall((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
}


@cache
def functions(path: Path) -> dict[str, int]:
    """Return the names of a module's tests and how many assertions each makes, pytest.raises among them."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found[node.name] = sum(_asserts(each) for each in ast.walk(node))
    return found


def _asserts(node: ast.AST) -> bool:
    raises = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("raises", "fail")
    return raises or isinstance(node, ast.Assert)


def test_the_table_has_each_requirement_once_with_a_state_of_three() -> None:
    assert sorted(ROWS) == list(range(1, 51))
    assert {state for state, _ in ROWS.values()} <= {"holds", "partly", "later"}


def test_only_what_waits_for_a_part_that_is_not_there_comes_later() -> None:
    assert {number for number, (state, _) in ROWS.items() if state == "later"} <= LATER


@pytest.mark.parametrize("number", [number for number, (state, _) in ROWS.items() if state != "later"])
def test_a_requirement_names_tests_that_can_fail(number: int) -> None:
    _, tests = ROWS[number]
    assert tests, f"R{number} names no test"
    for file, name in tests:
        found = functions(ROOT / file)
        assert name in found, f"R{number}: {file}::{name} is gone"
        assert found[name], f"R{number}: {file}::{name} asserts nothing"
