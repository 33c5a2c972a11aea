"""Bounded changes that a rebalancing plan makes to one pool's router. An empty table reverts them.

This module is separate from the router, which works without rebalancing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from routing.router import Router
from routing.values.decision import Outcome
from routing.values.inference_request import InferenceRequest

MAX_WIDENED = 1000
MAX_CANDIDATES = 8


@runtime_checkable
class KeepsPrefixes(Protocol):
    """A placement that keeps each prefix on `d` engines. `d` can be increased per prefix."""

    d: int

    def prefix_of(self, request: InferenceRequest) -> int:
        """Return the key that currently determines a request's candidates."""


class TooManyWidenedError(ValueError):
    """A table of widened prefixes exceeds its limits. The message names the limit."""


def widen(router: Router, candidates: Mapping[int, int]) -> None:
    """Set the number of candidates per affinity key, replacing the whole table. Other keys use the default number.

    Only placements that keep a prefix on a few engines use the table. Raises TooManyWidenedError.
    """
    if len(candidates) > MAX_WIDENED:
        raise TooManyWidenedError(f"{len(candidates)} widened prefixes exceed the limit of {MAX_WIDENED}")
    if any(not 1 <= candidate <= MAX_CANDIDATES for candidate in candidates.values()):
        raise TooManyWidenedError(f"a prefix has 1 to {MAX_CANDIDATES} candidates, not {sorted(candidates.values())}")
    if candidates == router.view.roster.widened:
        return
    # Another object, by which views notice the change.
    router.view.roster.widened = dict(candidates)
    router.view.forget_derived()


def sticky_placement_of(router: Router) -> KeepsPrefixes | None:
    """Return the pool's placement if it keeps prefixes on a few engines, else None."""
    placement = router.migration.placement
    return placement if isinstance(placement, KeepsPrefixes) else None


def relieve(router: Router, engine_id: str, at_most: int, now: float) -> list[Outcome]:
    """Move requests off an engine to other candidates where they gain. Return the dispatches that follow.

    Unknown engines are ignored.
    """
    return router.migration.relieve_engine(engine_id, at_most, now)
