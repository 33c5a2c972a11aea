"""Everything that ARCHITECTURE.md, README.md, and docs/ name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from controlplane.management.programs import PROGRAMS
from tests.named_tests import ROOT, assert_named_tests_can_fail

DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
INVARIANTS = [part for part in ARCHITECTURE.split("\n\n") if part.startswith("**Invariant:**")]
WITHOUT_DJANGO = set(PROGRAMS)
"""Commands that manage.py runs without loading Django."""

_ROOM = re.compile(r"^### (\w+)/")
_ROW = re.compile(r"^(`[\w/]+/`[^|]*) \| .* \| (.*)$")
_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"^```sh\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)


def code_map() -> Iterator[tuple[list[Path], list[str]]]:
    """Yield the folders of each row of the code map, and its entry files."""
    room = ROOT
    for line in ARCHITECTURE.splitlines():
        if heading := _ROOM.match(line):
            room = ROOT / heading[1]
        elif row := _ROW.match(line):
            yield [room / item for item in re.findall(r"`([\w/]+)/`", row[1])], re.findall(r"`(\w[\w/]*)`", row[2])


def code(path: Path) -> str:
    """Return the commands and names that a document formats as code."""
    return "\n".join(block or span for block, span in _CODE.findall(path.read_text(encoding="utf-8")))


@cache
def anchors(path: Path) -> set[str]:
    """Return the fragments of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda text: " ".join(text.split()[1:7]))
def test_invariant_names_tests_that_can_fail(invariant: str) -> None:
    assert_named_tests_can_fail(invariant, invariant.splitlines()[0])


def test_code_map_is_short() -> None:
    assert len(ARCHITECTURE.split()) <= 2500


def test_code_map_names_existing_folders_and_files() -> None:
    rows = list(code_map())
    assert len(rows) > 60
    for folders, starts in rows:
        assert [item for item in folders if not item.is_dir()] == []
        for start in starts:
            paths = [folder / start for folder in folders]
            assert any(path.with_suffix(".py").is_file() for path in paths), paths


def test_links_have_targets() -> None:
    for document in DOCUMENTS:
        for target, anchor in _LINK.findall(document.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            path = document.parent / target if target else document
            assert path.exists(), f"{document}: {target}"
            assert not anchor or anchor in anchors(path), f"{document}: {target}#{anchor}"


def test_commands_in_documents_exist() -> None:
    text = "\n".join(map(code, DOCUMENTS))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z][\w-]*)", text, re.MULTILINE)) <= targets
    commands = {item.stem for item in (ROOT / "controlplane/management/commands").glob("[a-z]*.py")}
    django = {"migrate", "createsuperuser", "changepassword", "check", "collectstatic", "shell"}
    assert set(re.findall(r"manage\.py ([a-z][\w-]*)", text)) <= commands | django | WITHOUT_DJANGO
    for module in set(re.findall(r"python -m ([a-z][\w.]*\w)", text)):
        assert find_spec(module) is not None, module
