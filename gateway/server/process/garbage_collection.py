"""Sets up garbage collection of a serving process after its start."""

from __future__ import annotations

import gc

YOUNG = 20_000
"""Objects allocated and not freed between two collections of the young generation. A request leaves mostly objects
without cycles, which are freed by reference counts; Python's default of 700 would scan them after every few requests.
"""
MIDDLE, OLD = 20, 50
"""Collections of one generation between two of the next."""


def settle_heap() -> None:
    """Exclude the objects of the start from later collections, and set the collection intervals of a server."""
    # Frozen garbage would never be freed.
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
