"""The words of a verdict on a paper's claim."""

from __future__ import annotations

from typing import Any

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
BY_CONSTRUCTION = "by construction"
"""The setting was made from the paper's own figure, so that it cannot disagree."""

Judged = dict[str, Any]
"""A claim's figures, and its `verdict`; the words around them stand in chapters/verdicts.md."""


def judged(*, reproduced: bool, partly: bool = False) -> str:
    """Return the verdict in words."""
    return REPRODUCED if reproduced else PARTLY if partly else NOT
