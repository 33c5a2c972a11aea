"""Which modules a program reaches by its imports, as the source states them, wherever in a file they are."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def reached(entries: Iterable[str]) -> set[Path]:
    """Return the files that these files and folders import, directly or not, and themselves."""
    visited: set[Path] = set()
    waiting = [file for entry in entries for file in files(entry)]
    while waiting:
        file = waiting.pop()
        if file not in visited:
            visited.add(file)
            waiting += _imported(file)
    return visited


def files(name: str) -> list[Path]:
    """Return the Python files of a path from the root: one file, or all of a folder."""
    path = ROOT / name
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


@cache
def _imported(file: Path) -> tuple[Path, ...]:
    names = [name for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) for name in _names(node)]
    return tuple(path for name in names if (path := _file(name)) is not None)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the modules of an import, and those that a string names, as a table of classes or commands does."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.replace(".", "a").isidentifier():
        yield node.value


def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if "." in module and file.is_file():
            return file
    return None
