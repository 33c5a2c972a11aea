"""Names, docstrings, comments, and pages use standard terms (words.py)."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.house.words import broken_words, spoken, spoken_by_the_console

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "kvstore", "routing", "planning", "gateway", "simulator", "controlplane", "web", "templates", "deploy", "examples",
    "headway_client", "bench", "tests", "docs",
)  # fmt: skip
LISTS = (
    "docs/decisions/", "docs/papers.md", "docs/evidence.md", "bench/house/", "bench/evidence/chapters/", "tests/house/",
    "simulator/workloads/prompt_text.py",
)  # fmt: skip
"""Files that list words, quote papers, or document retired words."""
BY_DJANGO = {"Command", "Meta", "SessionStore"}
"""Class names that Django requires."""


@pytest.mark.parametrize("part", PARTS)
def test_standard_terms_are_used(part: str) -> None:
    broken = [f"{at}: {', '.join(words)}" for at, words in broken_words(ROOT, [part]) if not at.startswith(LISTS)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("part", PARTS)
def test_names_docstrings_and_comments_have_no_figures_of_speech(part: str) -> None:
    broken = [line for line in spoken(ROOT, [part]) if not line.startswith(LISTS)]
    assert not broken, "\n".join(broken)


def test_scripts_and_templates_have_no_figures_of_speech() -> None:
    broken = list(spoken_by_the_console(ROOT, ["web", "templates", "examples"]))
    assert not broken, "\n".join(broken)


def test_public_class_name_has_one_meaning() -> None:
    files = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for file in files.split():
        if not file.startswith(("tests/", "bench/")) and "/migrations/" not in file:
            for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in BY_DJANGO:
                    defined[node.name].append(file)
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}


def test_words_are_listed_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("import gateway\n# A ticket that nobody hears.\n")
    assert list(broken_words(tmp_path, [""])) == [("b.py:2", ["ticket"])]


def test_names_docstrings_and_comments_with_figures_of_speech_are_listed(tmp_path: Path) -> None:
    code = [
        '"""Whoever asks."""', "def tell(place: int, *, found: int) -> None:", "    each, rest = place, found",
        "def test_nobody_looks() -> None:", "    x.told = 1", "def place() -> None: ...",
    ]  # fmt: skip
    (tmp_path / "c.py").write_text("\n".join(code))
    assert sorted(line.partition(": ")[2] for line in spoken(tmp_path, [""])) == [
        "definition tell",
        "docstring Whoever asks.",
        "name each",
        "name found",
        "name place",
        "name told",
        "test test_nobody_looks",
    ]


def test_names_and_comments_of_scripts_and_variables_of_templates_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text(
        "const lastHeard = 'told';\nthis.#tell(); // nobody asks\nrows.forEach((row) => row.placeholder);\n"
    )
    (tmp_path / "a.html").write_text("{% for row, each in rows %}\n{% with told=row %}{% url 'x' as place %}")
    assert sorted(spoken_by_the_console(tmp_path, [""])) == [
        "a.html:1: variable each",
        "a.html:2: text told",
        "a.html:2: variable place",
        "a.html:2: variable told",
        "a.js:1: name lastHeard",
        "a.js:2: comment nobody",
        "a.js:2: name tell",
    ]
