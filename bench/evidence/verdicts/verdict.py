"""The terms of a verdict on a paper's claim."""

from __future__ import annotations

from typing import Any

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
BY_CONSTRUCTION = "by construction"
"""The setting was derived from the paper's own figure, so it cannot disagree."""

Judged = dict[str, Any]
"""A claim's figures and its `verdict`. chapters/verdicts.md contains the text."""


def judged(*, reproduced: bool, partly: bool = False) -> str:
    """Return the term of the verdict."""
    return REPRODUCED if reproduced else PARTLY if partly else NOT
