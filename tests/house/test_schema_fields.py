"""Each field of a schema has a reader: a field that is accepted, passed on, and used nowhere is a promise not kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ("gateway/contracts", "routing/policy", "planning/documents")
BODIES = "gateway/api"
"""Its other classes are answers, which callers read."""
ANSWERS = {"explanation", "regret"}
"""Contracts that callers of the explain API read."""
READERS = ("gateway", "routing", "planning", "kvstore", "controlplane", "web", "deploy")
PAGES = ("templates/**/*.html", "web/frontend/**/*.js")


def fields_of(source: str, *, bodies: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the class and the name of each field of the module's msgspec structs."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or not any("Struct" in ast.unparse(base) for base in node.bases):
            continue
        if bodies and not node.name.endswith("Body"):
            continue
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item.annotation):
                yield node.name, ast.unparse(item.target)


def read_in(source: str) -> Iterator[str]:
    """Yield the names that a module reads as attributes, or contains as strings.

    A method call reads no field, and `ordered=asked.ordered` only passes one on.
    """
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    passed = {id(item.value) for call in calls for item in call.keywords if _name(item.value) == item.arg}
    passed |= {id(call.func) for call in calls}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in passed:
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else None


def unread(fields: Iterable[tuple[str, str]], read: set[str]) -> list[str]:
    """Return the fields that no reader names."""
    return [f"{owner}.{name}" for owner, name in fields if name not in read]


def test_every_field_of_a_schema_is_read() -> None:
    read = {name for room in READERS for path in (ROOT / room).rglob("*.py") for name in read_in(path.read_text())}
    for pattern in PAGES:
        read |= {word for path in ROOT.glob(pattern) for word in re.findall(r"\w+", path.read_text())}
    found: list[str] = []
    for folder in (*SCHEMAS, BODIES):
        for path in sorted((ROOT / folder).rglob("*.py")):
            fields = fields_of(path.read_text(), bodies=folder == BODIES) if path.stem not in ANSWERS else ()
            found += unread(fields, read)
    assert found == []


def test_a_field_that_is_only_passed_on_counts_as_unread() -> None:
    schema = "class Asked(msgspec.Struct):\n    ordered: bool\n    used: int\n    shown: int\n    LIMIT: ClassVar[int]"
    reader = "make(ordered=asked.ordered, n=asked.used)\nasked.ordered()\nasked.ordered = 1\ngetattr(asked, 'shown')"
    assert unread(fields_of(schema), set(read_in(reader))) == ["Asked.ordered"]
