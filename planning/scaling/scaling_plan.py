"""The plan of one round of scaling, and its memory from round to round."""

from __future__ import annotations

from typing import Literal

import msgspec

from planning.facts.fleet_facts import Role
from planning.facts.forecast import Forecast
from planning.facts.reason import Reason
from planning.scaling.remap import Remap

MAX_HOURS = 25
"""Hours of engine time that are remembered: a day and the current hour."""


class ScalingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many engines to add, or which to drain; if neither, the reasons say why not."""

    pool_id: str
    at_s: float
    action: Literal["none", "add", "drain"]
    engines: int
    """Number of engines that serve or start."""
    target: int
    """Number of engines once the plan is carried out."""
    add: tuple[Role, ...] = ()
    """The role of each engine to add."""
    drain: tuple[str, ...] = ()
    """Ids of the engines to drain and then stop."""
    attainment: float | None = None
    """Share of the last window's requests on time; None: too few requests."""
    demand: float | None = None
    """Engine seconds of demand per second."""
    forecast: Forecast | None = None
    queued_s: float = 0.0
    """Engine seconds of work that wait."""
    remap: Remap | None = None
    """Mappings that the change will move on hash rings; None where placement has none, or nothing changes."""
    engine_h_today: float = 0.0
    """Engine hours of the last 24 hours."""
    reasons: tuple[Reason, ...] = ()
    """Reasons for the plan, or for inaction; never empty."""


class ScalingMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State between rounds. The first round starts with an empty one. Times are None if there was none."""

    added_s: float | None = None
    drained_s: float | None = None
    calm_since_s: float | None = None
    """Since when fewer engines would be enough."""
    too_few: int = 0
    """Engines with which objectives were missed last…"""
    too_few_demand: float = 0.0
    """…at this demand…"""
    too_few_s: float | None = None
    """…at this moment: this number is not tried again at the same demand for a while."""
    metered_s: float | None = None
    """Until when engine time has been counted."""
    hours: tuple[tuple[int, float], ...] = ()
    """(number of the hour, engine seconds within it), oldest first."""


def metered(memory: ScalingMemory, engines: int, now_s: float) -> ScalingMemory:
    """Return the memory with the engine time since the last round counted; a long pause counts as one hour."""
    since_s = memory.metered_s if memory.metered_s is not None else now_s
    spent_s = engines * min(max(now_s - since_s, 0.0), 3600.0)
    hour = int(now_s // 3600)
    hours = dict(memory.hours)
    hours[hour] = hours.get(hour, 0.0) + spent_s
    kept = sorted((number, seconds) for number, seconds in hours.items() if hour - number < MAX_HOURS)
    return msgspec.structs.replace(memory, metered_s=now_s, hours=tuple(kept))


def engine_h_of_day(memory: ScalingMemory, now_s: float) -> float:
    """Return the engine hours of the last 24 hours, the oldest hour in part."""
    hour, part = int(now_s // 3600), now_s % 3600 / 3600
    total_s = 0.0
    for number, seconds in memory.hours:
        age = hour - number
        total_s += seconds * (1.0 - part) if age == 24 else seconds if 0 <= age < 24 else 0.0
    return total_s / 3600
