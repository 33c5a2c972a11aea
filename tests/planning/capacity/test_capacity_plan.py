"""Capacity over regions: separate peaks compared with the shared one, prices, and the confidence of the saving."""

from __future__ import annotations

import math
from random import Random

import pytest

from planning.capacity.capacity_plan import CapacityPlan, CapacityQuestion, capacity_plan

STEP_S = 900.0
DAY = 96


def day(peak_at: int, height: float = 10.0) -> list[float]:
    return [height * (0.6 + 0.4 * math.cos(2 * math.pi * (step - peak_at) / DAY)) for step in range(DAY)]


def plan(demand: dict[str, list[float]], **changes: float) -> CapacityPlan:
    prices = {"reserved_per_h": 37.56, "on_demand_per_h": 98.32, "utilization": 1.0, **changes}
    return capacity_plan(CapacityQuestion(demand=demand, step_s=STEP_S, **prices), Random(1))


def test_regions_that_peak_at_different_times_share_engines() -> None:
    planned = plan({"us": day(0), "asia": day(48)})
    assert planned.own_peaks == pytest.approx(20)
    assert planned.shared_peak == pytest.approx(12)
    assert planned.saving == pytest.approx(0.4)
    assert planned.regions["asia"].own_step == 48
    assert (planned.own_cost, planned.shared_cost) == (pytest.approx(20 * 37.56), pytest.approx(12 * 37.56))
    assert planned.on_demand_cost == pytest.approx(12 * 98.32)


def test_regions_that_peak_together_save_nothing() -> None:
    planned = plan({"us": day(0), "ca": day(0)})
    assert planned.saving == pytest.approx(0)
    assert planned.range is not None
    assert planned.range.high == pytest.approx(0)


def test_engines_are_planned_with_a_share_of_idle_time() -> None:
    assert plan({"us": day(0)}, utilization=0.5).shared_peak == pytest.approx(20)


def test_the_mix_reserves_engines_that_are_busy_often_enough() -> None:
    demand = [10.0] * 10 + [4.0] * 30
    planned = plan({"us": demand}, reserved_per_h=1.0, on_demand_per_h=2.0)
    assert planned.mixed_reserved == 4.0
    assert planned.mixed_cost == pytest.approx(4.0 + 2.0 * 6.0 / 4)
    candidates = [level + 2.0 * sum(max(0.0, item - level) for item in demand) / 40 for level in range(11)]
    assert planned.mixed_cost == pytest.approx(min(candidates))
    assert plan({"us": demand}, reserved_per_h=3.0, on_demand_per_h=2.0).mixed_reserved == 0


def test_less_data_widens_the_range() -> None:
    rng = Random(5)

    def days(count: int) -> dict[str, list[float]]:
        noise = [1 + 0.2 * rng.gauss(0, 1) for _ in range(DAY * count)]
        return {
            region: [value * factor for value, factor in zip(day(at) * count, noise, strict=True)]
            for region, at in (("us", 0), ("eu", 24), ("asia", 48))
        }

    ranges = [plan(days(count)).range for count in (1, 14)]
    assert all(range_ is not None for range_ in ranges)
    few, many = (range_ for range_ in ranges if range_ is not None)
    assert (few.of_days, many.of_days) == (False, True)
    assert (few.pieces, many.pieces) == (12, 14)
    assert few.high - few.low > many.high - many.low > 0


def test_a_single_window_has_no_range() -> None:
    assert plan({"us": [1.0, 2.0]}).range is None


def test_the_same_seed_gives_the_same_plan() -> None:
    demand = {"us": day(0), "eu": day(20)}
    assert plan(demand) == plan(demand)


def test_zero_demand_saves_nothing() -> None:
    assert plan({"us": [0.0] * DAY, "eu": [0.0] * DAY}).saving == 0


@pytest.mark.parametrize("changes", [{"utilization": 0.0}, {"reserved_per_h": 0.0}, {"on_demand_per_h": -1.0}])
def test_nonpositive_inputs_are_rejected(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        plan({"us": [1.0]}, **changes)


def test_regions_must_have_the_same_steps() -> None:
    with pytest.raises(ValueError, match="as many steps of each"):
        plan({"us": [1.0], "eu": [1.0, 2.0]})
