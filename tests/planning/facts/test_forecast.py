import math

import pytest

from planning.facts.fleet_facts import DemandPoint
from planning.facts.forecast import MAX_GROWTH, Forecast, expected_demand

NOW = 100_000.0


def forecast(points: list[DemandPoint]) -> Forecast | None:
    return expected_demand(points, NOW, ahead_s=60.0, recent_s=120.0, season_s=3600.0)


def line(slope: float, at_end: float) -> list[DemandPoint]:
    return [DemandPoint(NOW - ago, at_end - slope * ago) for ago in range(0, 120, 10)]


def test_without_recent_points_there_is_no_forecast() -> None:
    assert forecast([]) is None
    assert forecast([DemandPoint(NOW - 500, 3.0)]) is None
    assert forecast([DemandPoint(NOW, math.nan), DemandPoint(NOW, -1.0)]) is None


def test_steady_demand_is_forecast_unchanged() -> None:
    assert forecast(line(0.0, 3.0)) == Forecast(3.0, 3.0, "level")


def test_rising_demand_is_extrapolated() -> None:
    predicted = forecast(line(0.01, 3.0))
    assert predicted is not None
    assert predicted.basis == "trend"
    assert predicted.ahead == pytest.approx(3.6)


def test_falling_demand_is_not_extrapolated() -> None:
    predicted = forecast(line(-0.01, 3.0))
    assert predicted is not None
    assert predicted.ahead == predicted.now


def test_noise_is_not_a_trend() -> None:
    points = [DemandPoint(NOW - 10 * at, 3.0 + (1.0 if at * 7 % 5 > 2 else -1.0)) for at in range(12)]
    predicted = forecast(points)
    assert predicted is not None
    assert predicted.basis == "level"


def test_a_trend_is_bounded() -> None:
    predicted = forecast(line(0.2, 24.0))
    assert predicted is not None
    assert predicted.ahead <= MAX_GROWTH * predicted.now


def test_the_forecast_includes_the_demand_of_a_season_ago() -> None:
    then = NOW - 3600.0
    points = [DemandPoint(then - 60, 2.0), DemandPoint(then + 30, 3.0), *line(0.0, 4.0)]
    assert forecast(points) == Forecast(4.0, pytest.approx(6.0), "season")
