"""Savings from sharing engines across regions: own peaks against the shared peak (SkyWalker §2.1, Fig. 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random

import msgspec

DAY_S = 86_400.0
WINDOW_S = 7_200.0
"""Length of the resampled windows if there are fewer than LEAST_DAYS whole days (s)."""
LEAST_DAYS = 3
DRAWS = 1_000
LOW, HIGH = 0.05, 0.95
"""Quantiles of the range, which covers nine of ten draws."""


class CapacityQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Demand per region in fully busy engines, one value per step, and prices per engine and hour."""

    demand: Mapping[str, Sequence[float]]
    step_s: float
    reserved_per_h: float
    on_demand_per_h: float
    utilization: float = 0.7
    """Target share of an engine's busy time at the peak."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that allow no plan."""
        if not self.demand or len({len(item) for item in self.demand.values()}) > 1:
            raise ValueError("demand needs regions, and as many steps of each")
        if not 0 < self.utilization <= 1 or self.reserved_per_h <= 0 or self.on_demand_per_h <= 0:
            raise ValueError("utilization must be above 0 and at most 1, and prices above 0")


class SavingRange(msgspec.Struct, frozen=True):
    """Range of savings that contains nine of ten draws, and the units drawn."""

    low: float
    high: float
    pieces: int
    """Number of days or windows to draw from."""
    of_days: bool
    """True for whole days, False for windows of two hours, used for fewer than three days."""


class RegionPeak(msgspec.Struct, frozen=True):
    """A region's own peak, and its demand at the time of the shared peak (engines)."""

    own: float
    own_step: int
    at_shared_peak: float


class CapacityPlan(msgspec.Struct, frozen=True):
    """Engines and costs per hour (in the currency of the prices) of four ways to serve the demand."""

    regions: dict[str, RegionPeak]
    own_peaks: float
    """Engines for the peak of each region."""
    shared_peak: float
    """Engines for the peak of the sum."""
    shared_step: int
    saving: float
    """1 − shared peak / sum of own peaks, before rounding to whole engines."""
    range: SavingRange | None
    """None if there are fewer than two pieces to draw from."""
    own_cost: float
    """Cost of reserved engines for own peaks."""
    shared_cost: float
    """Cost of reserved engines for the shared peak."""
    on_demand_cost: float
    """Cost of on-demand engines that follow each region's demand without delay."""
    mixed_reserved: float
    """Reserved engines in the cheapest mix for the shared demand. On-demand engines serve the excess."""
    mixed_cost: float


def capacity_plan(question: CapacityQuestion, rng: Random) -> CapacityPlan:
    """Return the plan. Peaks are those of steps: shorter peaks are averaged out."""
    demand = {
        # Sorted, so that sums of floats do not depend on the order of the mapping.
        region: [value / question.utilization for value in values]
        for region, values in sorted(question.demand.items())
    }
    total = [sum(step) for step in zip(*demand.values(), strict=True)]
    own = {region: max(values) for region, values in demand.items()}
    shared = max(total)
    at = total.index(shared)
    # The level at which reserving costs as much as paying on demand for its busy time.
    mixed = _cheapest_reserved(total, question.reserved_per_h / question.on_demand_per_h)
    beyond = sum(max(0.0, value - mixed) for value in total) / len(total)
    return CapacityPlan(
        regions={
            region: RegionPeak(own[region], values.index(own[region]), values[at]) for region, values in demand.items()
        },
        own_peaks=sum(own.values()),
        shared_peak=shared,
        shared_step=at,
        saving=_saving(shared, sum(own.values())),
        range=_saving_range(demand, total, question.step_s, rng),
        own_cost=question.reserved_per_h * sum(own.values()),
        shared_cost=question.reserved_per_h * shared,
        on_demand_cost=question.on_demand_per_h * sum(total) / len(total),
        mixed_reserved=mixed,
        mixed_cost=question.reserved_per_h * mixed + question.on_demand_per_h * beyond,
    )


def _saving(shared: float, own: float) -> float:
    return 1.0 - shared / own if own > 0 else 0.0


def _cheapest_reserved(total: Sequence[float], price_ratio: float) -> float:
    """Return the level that demand exceeds for a share `price_ratio` of the time: above it, on-demand is cheaper."""
    if price_ratio >= 1:
        return 0.0
    ordered = sorted(total)
    return ordered[min(len(ordered) - 1, math.ceil((1 - price_ratio) * len(ordered)) - 1)]


def _saving_range(
    demand: Mapping[str, Sequence[float]], total: Sequence[float], step_s: float, rng: Random
) -> SavingRange | None:
    """Return the range of savings over resampled days or windows, drawn together for all regions.

    Peaks do not depend on the order of days. A draw never has a higher peak than the data, so the range does not cover
    rare peaks that were not observed.
    """
    of_days = len(total) * step_s >= LEAST_DAYS * DAY_S
    length = max(1, round((DAY_S if of_days else WINDOW_S) / step_s))
    pieces = len(total) // length
    if pieces < 2:
        return None
    # The peak of a draw is the greatest of its pieces' peaks, so that a draw needs no pass over the steps.
    peaks = [
        [max(values[piece * length : (piece + 1) * length]) for piece in range(pieces)]
        for values in (total, *demand.values())
    ]
    savings = []
    for _ in range(DRAWS):
        # The same days of all regions, so that simultaneous peaks stay simultaneous.
        drawn = rng.choices(range(pieces), k=pieces)
        shared, *own = (max(values[piece] for piece in drawn) for values in peaks)
        savings.append(_saving(shared, sum(own)))
    savings.sort()
    return SavingRange(savings[int(LOW * DRAWS)], savings[int(HIGH * DRAWS) - 1], pieces, of_days)
