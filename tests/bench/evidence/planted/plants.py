"""Figures planted just inside and just outside the limits of each verdict's rule.

A chain is a list of planted figures with the verdict that each must give. Where the verdict changes along a chain, the
figures are close, so a limit that moves by more than that fails.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.evidence import verdicts
from bench.evidence.verdicts.advisories import FAILS, HOLDS, WITHIN
from bench.evidence.verdicts.verdict import NOT, PARTLY, REPRODUCED

Patch = Callable[..., None]
"""`patch(module, name=value, ...)` replaces names of a module for one test."""
Judge = Callable[[Patch, Any], dict[str, Any]]
Case = tuple[Any, str]

_JUDGES = {"judged": {REPRODUCED, NOT}, "_verdict": {HOLDS, WITHIN, FAILS}}
"""The functions that return a verdict, and the verdicts that they return at least."""


class Plant(NamedTuple):
    """A rule as `module.function`, what calls it with planted figures, and a chain."""

    rule: str
    judge: Judge
    chain: tuple[Case, ...]


PLANTS: list[Plant] = []


def plant(rule: str, *chain: Case) -> Callable[[Judge], Judge]:
    """Add a chain to a rule. The decorated function plants the figures and returns what the rule returns."""

    def register(judge: Judge) -> Judge:
        PLANTS.append(Plant(rule, judge, chain))
        return judge

    return register


def rules() -> dict[str, set[str]]:
    """Return every rule in bench/evidence/verdicts with the verdicts that it can return."""
    return {
        f"{path.stem}.{name}": reachable
        for path in sorted(Path(verdicts.__path__[0]).glob("*.py"))
        for name, reachable in rules_of(path.read_text()).items()
    }


def rules_of(source: str) -> dict[str, set[str]]:
    """Return the functions of a module that return a verdict, on their own or from another rule of the module."""
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    calls = {name: [item for item in ast.walk(node) if isinstance(item, ast.Call)] for name, node in functions.items()}
    known: dict[str, set[str]] = {}
    while True:
        size = len(known)
        for name in functions.keys() - _JUDGES.keys() - {"claims"}:
            reachable = set[str]().union(*(_reachable(call, known) for call in calls[name]))
            if reachable:
                known[name] = reachable
        if len(known) == size:
            return known


def _reachable(call: ast.Call, known: dict[str, set[str]]) -> set[str]:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name != "judged":
        return _JUDGES.get(name, known.get(name, set()))
    values = {item.arg: item.value for item in call.keywords}
    never = {REPRODUCED} if isinstance(values["reproduced"], ast.Constant) else set()
    return (_JUDGES[name] - never) | ({PARTLY} if "partly" in values else set())


def close(one: Any, other: Any) -> bool:
    """Return whether figures differ by at most 5 %, a hundredth, or one, or in a single value that is no number."""
    pairs = list(zip(_flat(one), _flat(other), strict=True))
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    if any(isinstance(item, bool) or item is None for pair in differing for item in pair):
        return len(differing) == 1
    return all(abs(a - b) <= _distance(a, b) for a, b in differing)


def _distance(a: float, b: float) -> float:
    whole = isinstance(a, int) and isinstance(b, int)
    return max(1.0 if whole else 0.01, 0.05 * max(abs(a), abs(b)))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def at(values: tuple[float, ...], *, but: float, count: int = 1) -> tuple[float, ...]:
    """Return the values with the last `count` replaced."""
    return (*values[: len(values) - count], *(but,) * count)
