"""The capacity plan of this installation: the savings from sharing regions, computed from its request log."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from controlplane.capacity.demand import LoggedDemand
from controlplane.fleet.models.engine import Engine
from controlplane.platform.format import span
from planning.capacity.capacity_plan import CapacityPlan, CapacityQuestion, SavingRange, capacity_plan
from routing.values.counted import count

RESERVED_PER_H, ON_DEMAND_PER_H = 37.56, 98.32
"""SkyWalker's three-year reserved and on-demand prices for a p5.48xlarge ($ per hour, §2.1)."""
UTILIZATION = 0.7
MAX_DAYS = 30
DAYS = 7
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Parameters of the plan. All have defaults."""

    reserved_per_h: float = RESERVED_PER_H
    on_demand_per_h: float = ON_DEMAND_PER_H
    utilization: float = UTILIZATION
    days: float = DAYS


@dataclass(frozen=True, slots=True)
class FleetSize:
    """A number of engines under the recorded demand."""

    engines: int
    busy: float
    """Busy share at the shared peak; above 1, requests wait or are rejected."""
    above_target_h: float
    """Hours of the log in which they are busier than the target."""
    overloaded_h: float


@dataclass(frozen=True, slots=True)
class InstallationPlan:
    """The plan, with its inputs."""

    plan: CapacityPlan
    demand: LoggedDemand
    present: dict[str, int]
    """Registered engines by region."""
    utilization: float
    """Target share of an engine's busy time at the peak."""

    def size(self, engines: int) -> FleetSize:
        """Return how this number of engines (> 0) serves the demand, shared by all regions."""
        total, hours = self.total, self.demand.step_s / 3600
        return FleetSize(
            engines,
            max(total) / engines,
            hours * sum(busy > self.utilization * engines for busy in total),
            hours * sum(busy > engines for busy in total),
        )

    @property
    def total(self) -> list[float]:
        """Return the busy engines of all regions together, by step."""
        return [sum(step) for step in zip(*self.demand.regions.values(), strict=True)]

    @property
    def peak(self) -> float:
        """Return the busy engines at the shared peak."""
        return max(self.total)

    @property
    def span_s(self) -> float:
        """Return the time span of the log that the plan covers (s)."""
        return self.demand.until - self.demand.since

    @property
    def caveat(self) -> str:
        """Return the limits of the data; empty if it covers at least a day and the whole log was read."""
        sentences = []
        if self.span_s < DAY_S:
            sentences.append(
                f"The log covers {span(self.span_s)}, less than a day: peaks at other hours are missing. "
                "Wait for a full day before you resize the fleet."
            )
        if self.demand.every > 1:
            sentences.append(f"The log is long: the plan uses one of {self.demand.every} requests.")
        return " ".join(sentences)


def installation_plan(logged: LoggedDemand, asked: Prices) -> InstallationPlan:
    """Return the plan for the last days of the demand. Raises ValueError for invalid prices, shares, and no regions."""
    demand = logged.last_days(asked.days)
    question = CapacityQuestion(
        demand=demand.regions,
        step_s=demand.step_s,
        reserved_per_h=asked.reserved_per_h,
        on_demand_per_h=asked.on_demand_per_h,
        utilization=asked.utilization,
    )
    present: dict[str, int] = {}
    for region in Engine.objects.values_list("pool__region__slug", flat=True):
        present[region] = present.get(region, 0) + 1
    # A fixed seed: the same log gives the same range at each reload.
    return InstallationPlan(capacity_plan(question, Random(0)), demand, present, asked.utilization)


def range_words(saving: SavingRange | None) -> str:
    """Return the range of the saving and its basis, in words."""
    if saving is None:
        return "no range: the log has fewer than two windows of two hours"
    pieces = count(
        saving.pieces,
        "day" if saving.of_days else "window of two hours",
        "" if saving.of_days else "windows of two hours",
    )
    return f"{saving.low:.1%} to {saving.high:.1%} with 90 % confidence, resampled from {pieces}"
