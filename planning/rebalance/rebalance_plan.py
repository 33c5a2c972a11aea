"""The plan of one round of rebalancing, and its memory from round to round."""

from __future__ import annotations

import msgspec

from planning.facts.reason import Reason


class MigrateRequests(msgspec.Struct, frozen=True):
    """Queued requests that may leave an engine, each for another of its own candidates if that is better."""

    engine_id: str
    at_most: int


class RebalancePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of this round, and the complete table of widened prefixes."""

    pool_id: str
    at_s: float
    widened: dict[str, int] = {}
    """Affinity key → its number of candidates. The whole table: keys outside it have the usual number."""
    wider: tuple[str, ...] = ()
    """Keys that got more candidates in this round."""
    narrower: tuple[str, ...] = ()
    """Keys that went back to the usual number."""
    moves: tuple[MigrateRequests, ...] = ()
    load_cv: float | None = None
    hot: tuple[str, ...] = ()
    """Engines that have been hot for long enough."""
    recomputed_share: float | None = None
    """Share of the last prompt tokens that were computed although another engine held them."""
    reasons: tuple[Reason, ...] = ()
    """Reasons for the plan, or for inaction; never empty."""


class Widened(msgspec.Struct, frozen=True):
    """A prefix with more candidates than usual."""

    d: int
    since_s: float
    """When it was last widened."""
    needed_s: float
    """When it last brought more work than its usual engines could have carried besides the rest."""


class RebalanceMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State between rounds. The first round begins with an empty one."""

    hot_since_s: dict[str, float] = {}
    """Engine id → since when it has been hot."""
    widened: dict[str, Widened] = {}
    even_since_s: float | None = None
    """Since when the load has been even."""
