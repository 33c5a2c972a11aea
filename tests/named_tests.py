"""Tests that documents name as `tests/path.py::test_name`, and the tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return file and name of each test named in the text."""
    return _NAMED.findall(text)


def assert_named_tests_can_fail(text: str, of: str) -> None:
    """Fail unless the text names tests, and each exists and asserts something. `of` names their subject."""
    tests = named_tests(text)
    assert tests, f"{of} names no test"
    for file, name in tests:
        assert (ROOT / file).is_file(), f"{of}: {file} is gone"
        assertions = _assertions(ROOT / file)
        assert name in assertions, f"{of}: {file}::{name} is gone"
        assert assertions[name], f"{of}: {file}::{name} asserts nothing"


@cache
def _assertions(path: Path) -> dict[str, int]:
    """Return the number of assertions per test of a module, including pytest.raises."""
    counts = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            counts[node.name] = sum(_asserts(item) for item in ast.walk(node))
    return counts


def _asserts(node: ast.AST) -> bool:
    raises = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("raises", "fail")
    return raises or isinstance(node, ast.Assert)
