"""The plan of one round of scaling, and its memory between rounds."""

from __future__ import annotations

from typing import Literal

import msgspec

from planning.facts.fleet_facts import Role
from planning.facts.forecast import Forecast
from planning.facts.reason import Reason
from planning.scaling.remap import Remap

MAX_HOURS = 25
"""Remembered hours of engine time: a day and the current hour."""


class ScalingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Engines to add or drain. If there are none, the reasons say why."""

    pool_id: str
    at_s: float
    action: Literal["none", "add", "drain"]
    engines: int
    """Number of serving and starting engines."""
    target: int
    """Number of engines after the plan is carried out."""
    add: tuple[Role, ...] = ()
    """The role of each engine to add."""
    drain: tuple[str, ...] = ()
    """Ids of the engines to drain and then stop."""
    attainment: float | None = None
    """On-time share of the last window's requests, None for too few requests."""
    demand: float | None = None
    """Engine seconds of demand per second."""
    adds_above: float | None = None
    """Demand above which engines are added. Between this and `drains_below` their number stays."""
    drains_below: float | None = None
    forecast: Forecast | None = None
    queued_s: float = 0.0
    """Engine seconds of waiting work."""
    remap: Remap | None = None
    """Mappings that the change moves on hash rings. None if the placement has no rings or no engine changes."""
    engine_h_today: float = 0.0
    """Engine hours in the last 24 hours."""
    reasons: tuple[Reason, ...] = ()
    """Reasons for the plan or for inaction, at least one."""


class ScalingMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State between rounds. The first round starts with an empty one. Times are None if unset."""

    added_s: float | None = None
    drained_s: float | None = None
    calm_since_s: float | None = None
    """Since when fewer engines would be enough."""
    too_few: int = 0
    """Number of engines at which objectives were last missed."""
    too_few_demand: float = 0.0
    """Demand at that time."""
    too_few_s: float | None = None
    """That time. For a while, this number of engines is not tried again at the same demand."""
    metered_s: float | None = None
    """Time up to which engine time has been counted."""
    hours: tuple[tuple[int, float], ...] = ()
    """(Hour number, engine seconds within it), oldest first."""


def metered(memory: ScalingMemory, engines: int, now_s: float) -> ScalingMemory:
    """Return the memory with the engine time since the last round added. A long pause counts as one hour."""
    since_s = memory.metered_s if memory.metered_s is not None else now_s
    spent_s = engines * min(max(now_s - since_s, 0.0), 3600.0)
    hour = int(now_s // 3600)
    hours = dict(memory.hours)
    hours[hour] = hours.get(hour, 0.0) + spent_s
    kept = sorted((number, seconds) for number, seconds in hours.items() if hour - number < MAX_HOURS)
    return msgspec.structs.replace(memory, metered_s=now_s, hours=tuple(kept))


def engine_h_of_day(memory: ScalingMemory, now_s: float) -> float:
    """Return the engine hours of the last 24 hours, counting the oldest hour in part."""
    hour, part = int(now_s // 3600), now_s % 3600 / 3600
    total_s = 0.0
    for number, seconds in memory.hours:
        age = hour - number
        total_s += seconds * (1.0 - part) if age == 24 else seconds if 0 <= age < 24 else 0.0
    return total_s / 3600
