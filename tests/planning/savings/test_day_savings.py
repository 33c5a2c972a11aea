"""Windows of a day, and the arithmetic of its savings, against figures computed by hand."""

from __future__ import annotations

import math

import pytest

from planning.savings.day_savings import (
    LEAST_HOLDBACK,
    ArmRun,
    PolicyRun,
    WindowRuns,
    day_savings,
    day_total,
    engines_needed,
    holdback_check,
)
from planning.savings.day_windows import LEAST_REQUESTS, MOST_COUNTED, SLICES, DayWindow, day_windows

T95_3 = 2.353


def window(requests: int = 100, counted: int = 100, hours: float = 3.0) -> DayWindow:
    return DayWindow(first=0, last=counted, warmup=0, requests=requests, hours=hours)


def runs(late: list[float], engines: list[float], windows: list[DayWindow]) -> list[WindowRuns]:
    """Return windows with a live policy that is never late on four engines, and one alternative."""
    return [
        WindowRuns(
            window=item,
            live=PolicyRun(late=0.0, engines=4.0, tenants={"acme": 0.0, "beta": 0.0}),
            alternatives={"rr": PolicyRun(late=share, engines=number, tenants={"acme": share})},
            tokens={"acme": 300, "beta": 100},
        )
        for share, number, item in zip(late, engines, windows, strict=True)
    ]


def test_a_day_is_the_sum_of_its_windows_with_their_prediction_interval() -> None:
    pool, acme, beta = day_savings(runs([0.1, 0.2, 0.3, 0.4], [5.0, 5.0, 6.0, 6.0], [window()] * 4))
    assert (pool.tenant, acme.tenant, beta.tenant) == ("", "acme", "beta")
    # Late: mean 0.25 of 400 requests; variance 0.05 / 3; four windows predict four.
    half = T95_3 * math.sqrt(0.05 / 3 * (1 / 4 + 1 / 4))
    assert pool.late.mid == pytest.approx(100)
    assert [pool.late.low, pool.late.high] == pytest.approx([400 * (0.25 - half), 400 * (0.25 + half)])
    # Engines: 1, 1, 2, 2 more for 12 hours.
    half = T95_3 * math.sqrt(1 / 3 * (1 / 4 + 1 / 4))
    assert pool.engine_h.mid == pytest.approx(18)
    assert pool.engine_h.high == pytest.approx(12 * (1.5 + half))
    assert acme.late.mid == pytest.approx(100)
    assert beta.late == day_total([0.0] * 4, [100.0] * 4, [window()] * 4)
    assert acme.engine_h.mid == pytest.approx(0.75 * 18)
    assert acme.engine_h.mid + beta.engine_h.mid == pytest.approx(pool.engine_h.mid)


def test_windows_count_by_what_they_represent() -> None:
    windows = [window(requests=700, hours=1.0), *[window(requests=100, hours=3.0)] * 3]
    pool = day_savings(runs([0.1, 0.0, 0.0, 0.0], [8.0, 4.0, 4.0, 4.0], windows))[0]
    assert pool.late.mid == pytest.approx(70)
    assert pool.engine_h.mid == pytest.approx(4)


def test_the_range_shrinks_where_the_windows_are_a_small_part_of_the_day() -> None:
    values, weights = [0.1, 0.2, 0.3, 0.4], [1.0] * 4
    whole = day_total(values, weights, [window()] * 4)
    part = day_total(values, weights, [window(requests=10_000)] * 4)
    assert part.mid == whole.mid
    assert part.high - part.mid == pytest.approx((whole.high - whole.mid) * math.sqrt((1 / 4 + 1 / 400) / (1 / 2)))


def test_three_windows_give_no_range() -> None:
    with pytest.raises(ValueError, match="3 windows"):
        day_savings(runs([0.1] * 3, [5.0] * 3, [window()] * 3))


def test_engines_are_between_two_simulated_numbers() -> None:
    assert engines_needed({3: 0.8, 4: 0.95, 8: 1.0}, 0.9) == pytest.approx(3 + 2 / 3)
    assert engines_needed({4: 0.95, 8: 1.0}, 0.9) == 4
    assert engines_needed({4: 0.5, 8: 0.6}, 0.9) is None


def arms(control_late: int, live_late: int) -> tuple[ArmRun, ...]:
    return (ArmRun(50, control_late, 450, live_late),) * 2


def with_arms(late: list[tuple[int, int]]) -> list[WindowRuns]:
    return [
        WindowRuns(window=window(), live=PolicyRun(late=0.0, engines=4.0), alternatives={}, arms=arms(*pair))
        for pair in late
    ]


def test_the_range_for_the_holdback_contains_its_own_error() -> None:
    replayed = with_arms([(5, 9), (10, 9), (5, 9), (10, 9)])
    few, many = (
        holdback_check(replayed, "least_loaded", ArmRun(number, number // 5, 9 * number, 0))
        for number in (100, 100_000)
    )
    assert few is not None
    assert many is not None
    # 5 and 10 of 50 late, minus 9 of 450.
    assert few.replayed.mid == pytest.approx(0.13)
    assert (few.measured, few.requests, few.placement) == (0.2, 100, "least_loaded")
    assert few.replayed.high - few.replayed.low > many.replayed.high - many.replayed.low
    # The deviation between four windows remains.
    assert many.replayed.high - many.replayed.mid == pytest.approx(T95_3 * math.sqrt(0.05**2 / 3), rel=0.02)
    assert few.covered
    assert not many.covered


def test_replays_without_a_late_request_do_not_exclude_one() -> None:
    check = holdback_check(with_arms([(0, 0)] * 4), "least_loaded", ArmRun(1000, 1, 9000, 0))
    assert check is not None
    assert check.replayed.low < 0 < check.replayed.high
    assert check.covered


def test_without_enough_requests_of_the_holdback_nothing_is_compared() -> None:
    replayed = with_arms([(5, 9)] * 4)
    assert holdback_check(replayed, "least_loaded", ArmRun(LEAST_HOLDBACK - 1, 9, 900, 9)) is None
    assert holdback_check(replayed, "least_loaded", ArmRun(500, 9, 0, 0)) is None
    assert holdback_check(replayed[:3], "least_loaded", ArmRun(500, 9, 900, 9)) is None


def test_windows_are_the_middles_of_equal_slices() -> None:
    times = [float(second) for second in range(0, 86_401, 10)]
    windows = day_windows(times)
    assert len(windows) == SLICES
    assert sum(item.requests for item in windows) == len(times)
    assert sum(item.hours for item in windows) == pytest.approx(24)
    for item in windows:
        assert 0 <= item.first < item.last <= len(times)
        assert 0 < item.counted <= MOST_COUNTED
    # The first half of the windows already covers the day.
    begins = sorted(times[item.first] for item in windows[:4])
    assert begins[-1] - begins[0] > 43_200


def test_slices_with_little_traffic_have_no_window() -> None:
    busy = [float(number) for number in range(600)]
    windows = day_windows([*busy, 86_000.0])
    assert [item.requests for item in windows] == [600]
    assert day_windows([0.0] * (LEAST_REQUESTS - 1)) == ()
    assert day_windows([]) == ()
