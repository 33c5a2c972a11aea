"""What a paper claims, what we measured in its setting, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not reproduced"
BY_CONSTRUCTION = "by construction"
"""The setting was made from the paper's own figure, so that it cannot disagree."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the verdict table; texts are Markdown."""

    source: str
    """Paper and place."""
    claim: str
    setting: str
    theirs: str
    ours: str
    verdict: str
    why: str


def judged(*, reproduced: bool, partly: bool = False) -> str:
    """Return the verdict in words."""
    return REPRODUCED if reproduced else PARTLY if partly else NOT


def table(claims: Sequence[Claim]) -> str:
    """Return the claims as a Markdown table."""
    head = "| source | claim | setting | paper | measured | verdict | why |\n|---|---|---|---|---|---|---|\n"
    rows = (
        f"| {each.source} | {each.claim} | {each.setting} | {each.theirs} | {each.ours} "
        f"| **{each.verdict}** | {each.why} |\n"
        for each in claims
    )
    return head + "".join(rows)


def percent(share: float, digits: int = 1) -> str:
    """Return a share as per cent."""
    return f"{100 * share:.{digits}f} %"


def change(now: float, before: float) -> str:
    """Return the relative change with its sign."""
    return f"{100 * (now / before - 1):+.0f} %"


Chapter = Callable[[], str]
