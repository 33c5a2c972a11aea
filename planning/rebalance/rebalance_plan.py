"""The plan of one round of rebalancing, and its memory between rounds."""

from __future__ import annotations

import msgspec

from planning.facts.reason import Reason


class MigrateRequests(msgspec.Struct, frozen=True):
    """Queued requests that can leave an engine, each for another of its own candidates if that is better."""

    engine_id: str
    at_most: int


class RebalancePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of this round, and the complete table of widened prefixes."""

    pool_id: str
    at_s: float
    widened: dict[str, int] = {}
    """Affinity key → number of candidates. Keys outside this table have the usual number."""
    wider: tuple[str, ...] = ()
    """Keys that got more candidates in this round."""
    narrower: tuple[str, ...] = ()
    """Keys that returned to the usual number of candidates in this round."""
    moves: tuple[MigrateRequests, ...] = ()
    load_cv: float | None = None
    hot: tuple[str, ...] = ()
    """Engines that have been hot for long enough."""
    recomputed_share: float | None = None
    """Share of the latest prompt tokens that were computed although another engine held them."""
    reasons: tuple[Reason, ...] = ()
    """Reasons for the plan or for inaction, at least one."""


class Widened(msgspec.Struct, frozen=True):
    """A prefix with more candidates than usual."""

    d: int
    since_s: float
    """When it was last widened."""
    needed_s: float
    """When it last brought more work than its usual engines could have done besides their other work."""


class RebalanceMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State between rounds. The first round starts with an empty one."""

    hot_since_s: dict[str, float] = {}
    """Engine id → when it became hot."""
    widened: dict[str, Widened] = {}
    even_since_s: float | None = None
    """When the load became even."""
