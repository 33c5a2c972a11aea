"""Garbage collection of a serving process once it has started."""

from __future__ import annotations

import gc

YOUNG = 20_000
"""Objects made and not freed between two collections of the young. A request leaves behind mostly objects without
cycles, which are freed by their counts; Python's usual 700 would scan them after every few requests.
"""
MIDDLE, OLD = 20, 50
"""Collections of each generation between two of the next."""


def settle_heap() -> None:
    """Exclude the objects of the start from every later collection, and set the intervals of a server."""
    # Frozen garbage would never be freed.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
