"""Limits of files, folders, and functions, which no linter here has."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ("kvstore", "routing", "planning", "gateway", "simulator", "controlplane", "web")
ROOMS = (*CORE, "deploy", "headway_client", "bench", "tests")
SOURCES = [
    path
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
    if "migrations" not in path.parts and "node_modules" not in path.parts
]
TEMPLATES = sorted(ROOT.glob("templates/**/*.html"))
FRONTEND = [*sorted(ROOT.glob("web/frontend/**/*.js")), *sorted(ROOT.glob("web/frontend/**/*.css")), *TEMPLATES]
SCRIPTS = [path for pattern in ("*.js", "*.mjs", "*.ts") for path in sorted((ROOT / "web/frontend").rglob(pattern))]
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
BANNED_NAMES = {"utils", "helpers", "common", "misc"}


@cache
def text(path: Path) -> str:
    return path.read_text()


@cache
def functions(path: Path) -> list[FUNCTION]:
    return [node for node in ast.walk(ast.parse(text(path))) if isinstance(node, FUNCTION)]


def test_no_file_is_over_450_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(text(path).splitlines()) for path in [*SOURCES, *FRONTEND]}
    assert not {path: length for path, length in lengths.items() if length > 450}


@pytest.mark.parametrize(("paths", "columns"), [(SCRIPTS, 120), (TEMPLATES, 140)], ids=["scripts", "templates"])
def test_no_line_is_wider_than_it_may_be(paths: list[Path], columns: int) -> None:
    """Prettier breaks scripts. Templates are broken by hand, where a line break draws no gap between words.

    djLint and Prettier with a Jinja plug-in break them anywhere, and djhtml only indents.
    """
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(text(path).splitlines(), 1)
        if len(line) > columns
    ]
    assert not wide, "break these lines by hand"


def test_no_folder_holds_over_20_files() -> None:
    files = [*SOURCES, *SCRIPTS, *ROOT.glob("web/frontend/**/*.css")]
    folders = Counter((path.parent, path.suffix == ".py") for path in files if path.name != "__init__.py")
    assert not [str(folder.relative_to(ROOT)) for (folder, _), number in folders.items() if number > 20]


def test_no_function_is_over_60_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        if text(path).count("\n") > 60
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno + 1 > 60
    ]
    assert not long


def test_no_module_has_a_catch_all_name() -> None:
    assert not [path for path in SOURCES if path.stem in BANNED_NAMES]
