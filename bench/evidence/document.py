"""Puts docs/evidence.md together."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

from bench.evidence.chapters import (
    ablations,
    admission,
    defaults,
    elasticity,
    eviction,
    goodput,
    health,
    keys,
    knowledge,
    limits,
    live,
    load_curves,
    pd_ratio,
    pending,
    readings,
    rebalance,
    scale,
    setting,
    shared_prefix,
    steering_live,
    transfer,
    verdicts,
)
from bench.evidence.claims import Chapter
from bench.evidence.store import MissingResultError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "evidence.md"

_INTRODUCTION = """# Evidence

What the papers behind Switchyard claim, what the simulator measures in their settings, and where the two differ. This
document is made by `make evidence` from the committed results in `bench/results/`; no measured number in it is typed by
hand. The papers' figures are quoted with their section, those under *study* from an independent simulator's report.
`python -m bench.evidence --measure` makes the results anew (a few hours on two cores, traces needed).

"""


def text() -> str:
    """Return the document and write its pictures; raises MissingResultError."""
    chapters = (
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
        steering_live,
        limits,
        live,
        verdicts,
    )
    return _INTRODUCTION + _numbered("\n".join(_text_of(chapter.text) for chapter in chapters))


def build() -> None:
    """Write the document and its pictures; raises MissingResultError."""
    DOCUMENT.write_text(text())


def _text_of(chapter: Chapter) -> str:
    """Return a chapter, or what to run where its measurement has not been made yet."""
    try:
        return chapter()
    except MissingResultError as error:
        return f"## Not measured yet\n\n{error}\n"


def _numbered(chapters: str) -> str:
    """Return the chapters with their headings numbered in order."""
    numbers = count(1)
    return re.sub(r"^## (?:\d+\. )?", lambda _: f"## {next(numbers)}. ", chapters, flags=re.MULTILINE)
