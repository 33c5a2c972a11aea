"""Words of our own that the field has others for are in names of contracts alone (bench/house/words.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.house.words import ENFORCED, broken_words

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "kvstore", "routing", "planning", "gateway", "simulator", "controlplane", "web", "templates", "deploy", "examples",
    "headway_client", "bench", "tests", "docs",
)  # fmt: skip
HISTORY = (
    "docs/decisions/", "docs/papers.md", "docs/evidence.md", "bench/house/", "bench/evidence/", "tests/bench/",
    "tests/house/test_words.py", "simulator/workloads/prompt_text.py",
)  # fmt: skip
"""What tells which words were given up, quotes papers by their words, or lists words; and this rule itself."""


@pytest.mark.parametrize("part", PARTS)
def test_the_fields_words_are_used(part: str) -> None:
    broken = broken_words(ROOT, [part], ENFORCED)
    found = [f"{at}: {', '.join(words)}" for at, words in broken if not at.startswith(HISTORY)]
    assert not found, "\n".join(found)
