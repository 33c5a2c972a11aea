"""Limits of files and functions, and banned words."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ("kvstore", "routing", "planning", "gateway", "simulator", "controlplane", "web")
ROOMS = (*CORE, "deploy", "headway_client", "bench", "tests")
SOURCES = [
    path
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
    if "migrations" not in path.parts and "node_modules" not in path.parts
]
FRONTEND = [
    path
    for pattern in ("web/frontend/**/*.js", "web/frontend/**/*.css", "templates/**/*.html")
    for path in sorted(ROOT.glob(pattern))
]
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


def test_no_line_of_a_script_is_over_120_columns() -> None:
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SCRIPTS
        for number, line in enumerate(text(path).splitlines(), 1)
        if len(line) > 120
    ]
    assert not wide, "make format breaks code; break comments and texts by hand"


def test_no_folder_of_the_front_end_holds_over_20_files() -> None:
    folders = Counter(path.parent for path in [*SCRIPTS, *ROOT.glob("web/frontend/**/*.css")])
    assert not [str(folder.relative_to(ROOT)) for folder, files in folders.items() if files > 20]


def test_no_folder_holds_over_20_files() -> None:
    folders = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    assert not [str(folder.relative_to(ROOT)) for folder, files in folders.items() if files > 20]


def test_no_function_is_over_60_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in functions(path)
        if (node.end_lineno or node.lineno) - node.lineno + 1 > 60
    ]
    assert not long


def test_every_function_has_a_return_type() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        if "tests" not in path.parts
        for node in functions(path)
        if node.returns is None
    ]
    assert not silent


def test_no_module_has_a_catch_all_name() -> None:
    assert not [path for path in SOURCES if path.stem in BANNED_NAMES]


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if "tests" not in path.parts and path.read_text().strip() and ast.get_docstring(ast.parse(text(path))) is None
    ]
    assert not silent


def test_no_code_has_an_unfinished_marker() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    unfinished = [
        f"{path.relative_to(ROOT)}: {mark}"
        for path in [*SOURCES, *FRONTEND]
        for mark in marks
        if mark in path.read_text()
    ]
    assert not unfinished


def test_no_deserializer_can_run_code() -> None:
    banned = ("import pickle", "yaml.load(", "marshal.loads", "eval(", "exec(")
    here = Path(__file__)
    readers = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in SOURCES
        if path != here
        for word in banned
        if any(line.strip().startswith(word) or f" {word}" in line for line in text(path).splitlines())
    ]
    assert not readers
