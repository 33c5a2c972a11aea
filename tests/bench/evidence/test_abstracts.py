"""Every figure of the five papers' abstracts has a row in docs/evidence.md, or a reason why it has none."""

from __future__ import annotations

import re

import pytest

from bench.evidence.document import DOCUMENT

FIGURES = {
    "DualMap": ("2.25 times",),
    "Mooncake": ("59 to 498%", "115%", "107%", "100 billion tokens a day", "thousands of nodes"),
    "RLT and LBGR": ("6.92 times", "11.96 times", "14.06 times", "77.4%"),
    "SkyWalker": ("1.12 times", "2.06 times", "1.74 to 6.30 times", "25%"),
    "SYMPHONY": ("2.4 times", "4 times"),
}
"""Figures by the heading of their paper's table. "4 benchmarks" and "3 settings" (LBGR) describe the setting."""
VERDICTS = {"reproduced", "partly", "not reproduced"}


def _sections() -> dict[str, list[str]]:
    parts = re.split(r"^### (.+)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    return {name: text.splitlines() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize(("paper", "figure"), [(paper, item) for paper, figures in FIGURES.items() for item in figures])
def test_figure_has_a_row_with_a_verdict_or_a_reason(paper: str, figure: str) -> None:
    sections = _sections()
    rows = [line.strip("| ").split(" | ") for line in sections[paper] if line.startswith("| abstract")]
    judged = [row for row in rows if any(re.search(rf"(?<![\d.]){re.escape(figure)}", cell) for cell in row[1:4])]
    assert all(row[5].strip("*") in VERDICTS for row in judged)
    reasons = re.split(r"\n- ", "\n".join(sections["Not measured yet"]))
    reason = [item for item in reasons if item.startswith(f"{paper}'s abstract") and figure in " ".join(item.split())]
    assert judged or reason
