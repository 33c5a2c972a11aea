"""Inputs of one scaling round."""

from __future__ import annotations

from math import ceil

import msgspec

from planning.documents.scaling_document import ScalingDocument
from planning.facts.fleet_facts import ACTIVE, STARTING, EngineObservation, PoolFacts
from planning.facts.forecast import Forecast
from planning.facts.pool_load import PoolLoad
from planning.scaling.scaling_plan import ScalingMemory

IDLE_DEMAND = 0.01
"""Engine seconds per second of expected work that are worth no engine: a forecast rarely reaches zero."""


class ScalingRound(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of one round."""

    facts: PoolFacts
    settings: ScalingDocument
    memory: ScalingMemory
    load: PoolLoad
    forecast: Forecast | None
    imbalance: float | None

    @property
    def now_s(self) -> float:
        """Time of the round."""
        return self.facts.now_s

    @property
    def serving(self) -> list[EngineObservation]:
        """Engines that currently serve."""
        return [engine for engine in self.facts.engines if engine.lifecycle == ACTIVE]

    @property
    def engines(self) -> int:
        """Number of serving and starting engines."""
        return sum(engine.lifecycle in (ACTIVE, STARTING) for engine in self.facts.engines)

    @property
    def floor(self) -> int:
        """Minimum number of engines. A pool with roles needs both, so it never scales to zero."""
        roles = any(engine.role != "mixed" for engine in self.facts.engines)
        return max(self.settings.min_engines, 1) if roles else self.settings.min_engines

    @property
    def lost(self) -> int:
        """Number of unhealthy engines: they should serve but get no work."""
        return sum(item.load_share <= 0 for item in self.serving)

    @property
    def lasting(self) -> float:
        """Work per second that is expected to last: the forecast, which short peaks change little."""
        return self.forecast.ahead if self.forecast is not None else self.load.demand or 0.0

    @property
    def most(self) -> float:
        """Work per second above which engines are added."""
        limit = (self.engines - self.lost) * self.settings.utilisation * (1 + self.settings.hysteresis)
        return limit if self.engines else IDLE_DEMAND

    @property
    def least(self) -> float:
        """Work per second below which one engine fewer is enough."""
        return max(0, self.engines - self.lost - 1) * self.settings.utilisation * (1 - self.settings.hysteresis)

    @property
    def expected(self) -> float:
        """Maximum work per second now or expected before new engines could help."""
        return max(self.load.demand or 0.0, self.lasting)

    def needed(self, demand: float) -> int:
        """Return the engines needed for this demand at the target utilization, including unhealthy ones."""
        if self.floor == 0 and demand <= IDLE_DEMAND and not self.load.requests and not self.facts.unserved:
            return 0
        # Rounding must not add an engine where the quotient is a whole number.
        return ceil(demand / self.settings.utilisation - 1e-9) + self.lost
