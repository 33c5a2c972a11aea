"""Fill the chapters' templates with figures from the results, and write docs/evidence.md."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from types import ModuleType

from django.conf import settings
from django.template import Context, Engine
from typing_extensions import override

from bench.evidence.chapters import setting, verdicts
from bench.evidence.chapters.automation import automation_live, elasticity, health, live, pd_ratio, rebalance
from bench.evidence.chapters.capacity import admission, defaults, eviction, limits, scale, transfer
from bench.evidence.chapters.routing import (
    ablations,
    goodput,
    keys,
    knowledge,
    load_curves,
    pending,
    readings,
    shared_prefix,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "evidence.md"

CHAPTERS = (
    setting,
    goodput,
    readings,
    load_curves,
    pending,
    keys,
    ablations,
    scale,
    transfer,
    eviction,
    shared_prefix,
    admission,
    defaults,
    knowledge,
    rebalance,
    elasticity,
    pd_ratio,
    health,
    automation_live,
    limits,
    live,
    verdicts,
)
"""Modules with `figures()` and optionally `draw()` for pictures; the text is the Markdown file of the same name."""


class _Missing(str):
    """Raises on an unknown figure in a template. Django would leave a gap."""

    @override
    def __contains__(self, _: object) -> bool:
        return True

    @override
    def __mod__(self, name: object) -> str:
        raise LookupError(f"the chapter's figures have no {name}")


def text() -> str:
    """Return the document. Raises MissingResultError if a measurement is missing."""
    if not settings.configured:
        settings.configure()
    engine = Engine(
        dirs=[Path(__file__).parent / "chapters"],
        autoescape=False,
        builtins=["bench.evidence.template_filters"],
        string_if_invalid=_Missing("%s"),
    )
    chapters = [_rendered(engine, _template(item), item.figures()) for item in CHAPTERS]
    return _rendered(engine, "introduction", {}) + "\n" + _numbered("\n".join(chapters))


def draw() -> None:
    """Draw the pictures of all chapters."""
    for chapter in CHAPTERS:
        if hasattr(chapter, "draw"):
            chapter.draw()


def build() -> None:
    """Write the document and its pictures. Raises MissingResultError."""
    DOCUMENT.write_text(text())
    draw()


def _template(chapter: ModuleType) -> str:
    return chapter.__name__.partition(".chapters.")[2].replace(".", "/")


def _rendered(engine: Engine, chapter: str, figures: dict[str, object]) -> str:
    rendered: str = engine.get_template(f"{chapter}.md").render(Context(figures, autoescape=False))
    return rendered


def _numbered(chapters: str) -> str:
    """Return the chapters with their headings numbered in order."""
    numbers = count(1)
    return re.sub(r"^## ", lambda _: f"## {next(numbers)}. ", chapters, flags=re.MULTILINE)
