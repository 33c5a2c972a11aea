"""Successive halving: many candidates on one window, the better ones on more (Jamieson and Talwalkar 2016)."""

from __future__ import annotations

import msgspec

FACTOR = 3
"""One candidate in this many enters the next rung."""
MOST_CANDIDATES = 240
FINALISTS = 3


class Rung(msgspec.Struct, frozen=True):
    """How many candidates run, and on how many of the search windows in total."""

    candidates: int
    windows: int


def rungs(runs: int, windows: int) -> tuple[Rung, ...]:
    """Return the rungs that `runs` simulations allow, the live policy's included: one window, two, and all.

    Empty if they do not suffice for FINALISTS candidates.
    """
    for candidates in range(MOST_CANDIDATES, FINALISTS - 1, -1):
        second = max(FINALISTS, candidates // FACTOR)
        third = max(FINALISTS, second // FACTOR)
        if windows + candidates + second + third * (windows - 2) <= runs:
            return Rung(candidates, 1), Rung(second, 2), Rung(third, windows)
    return ()
