"""A count agrees with its noun: a number before a countable noun is formatted by `count` or `pluralize`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOUNS = (
    "block|canary|change|column|connection|day|decision|draft|engine|error|event|field|filter|gap|gateway|key|line|"
    "migration|note|person|point|pool|prefill|prefix|question|recording|replica|request|row|run|sample|seed|session|"
    "setting|shadow|shard|stream|tenant|time|token|version|what-if"
)
MANY = re.compile(rf"\s(?:more |equal |open |new |cached |late )?(?:{NOUNS})s\b(?!/)")
IN_TEMPLATE = re.compile(rf"\{{\{{ ([^}}]+) \}}\}}(?:</?[a-z]+[^>]*>)*({MANY.pattern})")
LIMIT = re.compile(r"\b[A-Z_]{3,}\b|limit|max_|min_|more_than")
SEVERAL = ("mark.label", "points", "role", "which", "share", "days")
"""Nouns that are never singular: ranges, percentage points, and names rather than numbers."""


def several(source: str) -> Iterator[tuple[int, str]]:
    """Yield each f-string part with a bare number before a plural noun, except in errors of programs."""
    tree = ast.parse(source)
    internal = {id(item) for node in ast.walk(tree) if isinstance(node, ast.Raise) for item in ast.walk(node)}
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) and id(node) not in internal else []
        for before, value, after in zip([None, *parts], parts, parts[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                text, lead = ast.unparse(value.value), str(getattr(before, "value", ""))
                rounded = value.format_spec is not None and "f" in ast.unparse(value.format_spec)
                bare = not (LIMIT.search(text) or text in SEVERAL or "count(" in text or lead.endswith(" of "))
                if MANY.match(str(after.value)) and bare and not rounded:
                    yield node.lineno, f"{{{text}}}{str(after.value)[:30]}"


def test_no_text_of_the_program_has_a_bare_number_before_a_plural() -> None:
    broken = []
    for part in ("web", "controlplane", "planning", "gateway", "routing"):
        for path in sorted((ROOT / part).rglob("*.py")):
            broken += [f"{path.relative_to(ROOT)}:{line}: {text}" for line, text in several(path.read_text())]
    assert not broken, "\n".join(broken)


def test_no_template_has_a_bare_number_before_a_plural() -> None:
    broken = []
    for path in sorted((ROOT / "templates").rglob("*.html")):
        source = path.read_text()
        for match in IN_TEMPLATE.finditer(source):
            value, noun = match.groups()
            part = source[: match.start()].rstrip().endswith(" of")
            if not (LIMIT.search(value) or value in SEVERAL or part):
                broken.append(f"{path.name}: {value}{noun}")
    assert not broken, "\n".join(broken)
