"""Engine health's verdict on each engine, and the plan with all verdicts of a pool."""

from __future__ import annotations

from typing import Literal

import msgspec

from planning.facts.reason import Reason

HealthState = Literal["healthy", "suspect", "quarantined", "probation"]

HEALTHY: HealthState = "healthy"
SUSPECT: HealthState = "suspect"
QUARANTINED: HealthState = "quarantined"
PROBATION: HealthState = "probation"

NEWCOMER = "newcomer"
"""Code of the probation of a new engine."""


class HealthVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. suspect: watched. quarantined: gets no new work. probation: in slow start."""

    engine_id: str
    incarnation: int
    state: HealthState
    code: str = ""
    """The sign's code (see planning.engine_health.health_signs); empty when healthy."""
    text: str = ""
    """The sign in one sentence, empty when healthy."""
    since_s: float
    """When it entered this state."""
    until_s: float | None = None
    """Earliest end of a quarantine. None: when its sign ends."""
    load_share: float = 1.0
    """Target share of its usual load, 0..1."""
    slow_start_s: float = 0.0
    """Seconds from `since_s` until a probation's share reaches 1."""


class HealthPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One round of engine health."""

    pool_id: str
    at_s: float
    verdicts: tuple[HealthVerdict, ...]
    """One per engine, in the order of the facts."""
    changed: tuple[str, ...]
    """Ids of the engines whose state or code changed."""
    panic: bool
    """Whether too few engines are healthy, so that no outlier is quarantined."""
    reasons: tuple[Reason, ...]
    """Reasons for the plan, at least one."""
