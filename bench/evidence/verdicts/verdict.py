"""The terms of a verdict on a paper's claim."""

from __future__ import annotations

from typing import Any

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
BY_CONSTRUCTION = "by construction"
"""The setting was derived from the paper's own figure, so it cannot disagree."""

Judged = dict[str, Any]
"""A claim's figures and its `verdict`. chapters/verdicts.md contains the text."""


QUARTER = 0.25


def near(ratio: float, *paper: float) -> bool:
    """Return whether a ratio is in the paper's range (one or two figures), or misses it by a quarter of its effect.

    The effect of a ratio is its distance from 1, which means no effect: 1.07 is not near 1.31.
    """
    closest = min(max(ratio, min(paper)), max(paper))
    return abs(ratio - closest) <= QUARTER * abs(closest - 1)


def reaches(ratio: float, paper: float) -> bool:
    """Return whether a ratio shows at least three quarters of the effect of the paper's, in the same direction."""
    return (ratio - 1) / (paper - 1) >= 1 - QUARTER


def judged(*, reproduced: bool, partly: bool = False) -> str:
    """Return the term of the verdict."""
    return REPRODUCED if reproduced else PARTLY if partly else NOT
