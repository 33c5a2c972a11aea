import random
from itertools import combinations

import pytest

from planning.adviser.trace_windows import (
    BUSIEST,
    ODD,
    QUIETEST,
    TYPICAL,
    ShortTraceError,
    TraceColumns,
    WindowPlan,
    window_plan,
)

ROWS = 2400
TIMES = [0.1 * number for number in range(ROWS)]
"""Windows have 150 rows."""


def planned(times: list[float], prompts: list[int], outputs: list[int], known: list[int] | None = None) -> WindowPlan:
    return window_plan(TraceColumns(times, prompts, outputs, known or [0] * len(times)))


def varied(rows: int, low: int, high: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [rng.randint(low, high) for _ in range(rows)]


def test_steady_traffic_has_no_change() -> None:
    for seed in range(20):
        assert planned(TIMES, varied(ROWS, 100, 9000, seed), varied(ROWS, 1, 600, seed + 99)).change is None


@pytest.mark.parametrize("sign", ["prompt tokens", "output tokens", "requests per second", "share of known prefixes"])
def test_a_change_is_noticed_within_two_windows_and_no_window_is_before_it(sign: str) -> None:
    half = ROWS // 2
    prompts, outputs, known, times = varied(ROWS, 500, 1500), varied(ROWS, 100, 300, 2), [0] * ROWS, TIMES
    if sign == "prompt tokens":
        prompts[half:] = varied(half, 200, 600)
    elif sign == "output tokens":
        outputs[half:] = varied(half, 10, 60)
    elif sign == "share of known prefixes":
        known[half:] = [length // 2 for length in prompts[half:]]
    else:
        times = [at if number < half else TIMES[half] + (at - TIMES[half]) * 0.4 for number, at in enumerate(TIMES)]
    plan = planned(times, prompts, outputs, known)
    assert plan.change is not None
    window_s = times[-1] / 16
    assert any(sign in text for text in plan.change.signs)
    assert times[half] - window_s <= plan.change.at_s <= times[half] + window_s
    assert plan.change.noticed_s <= times[half] + 2 * window_s + 1e-6
    windows = [*plan.search, *plan.predict, *plan.check]
    assert min(times[item.first] for item in windows) >= plan.change.at_s


def test_one_odd_window_is_no_change() -> None:
    prompts = varied(ROWS, 500, 1500)
    prompts[1200:1350] = [9000] * 150
    assert planned(TIMES, prompts, [50] * ROWS).change is None


def test_too_few_windows_since_a_change_are_an_error_that_names_it() -> None:
    prompts = varied(ROWS, 500, 1500)
    prompts[-300:] = [9000] * 300
    with pytest.raises(ShortTraceError, match="since its traffic changed at 210 s"):
        planned(TIMES, prompts, [50] * ROWS)


def test_no_window_has_two_uses_and_each_has_its_warmup() -> None:
    plan = planned(TIMES, [1000] * ROWS, [50] * ROWS)
    windows = [*plan.search, *plan.predict, *plan.check]
    assert len(windows) == 14
    for one, other in combinations(windows, 2):
        counted = [set(range(item.first + item.warmup, item.last)) for item in (one, other)]
        assert not counted[0] & counted[1]
    assert all(item.warmup == pytest.approx(2 * item.requests, abs=2) for item in windows)
    assert min(len(plan.predict), len(plan.check)) >= 3


def test_busy_quiet_and_odd_windows_are_named() -> None:
    prompts, outputs = [1000 + 10 * (number // 150 % 5) for number in range(ROWS)], [50] * ROWS
    prompts[600:750] = [4000] * 150
    prompts[900:1050] = [100] * 150
    outputs[1200:1350] = [2000] * 150
    starts = {item.kind: item.first + item.warmup for item in planned(TIMES, prompts, outputs).search}
    assert list(starts) == [BUSIEST, TYPICAL, QUIETEST, ODD]
    assert starts[BUSIEST] == pytest.approx(600, abs=2)
    assert starts[QUIETEST] == pytest.approx(900, abs=2)
    assert starts[ODD] == pytest.approx(1200, abs=2)


@pytest.mark.parametrize("rows", [0, 1, 200])
def test_a_short_trace_is_an_error(rows: int) -> None:
    with pytest.raises(ShortTraceError, match="windows of 30 requests"):
        planned(TIMES[:rows], [1000] * rows, [50] * rows)


def test_windows_with_few_requests_are_left_out() -> None:
    times = [number * 0.1 if number < 2000 else 1000 + number for number in range(ROWS)]
    with pytest.raises(ShortTraceError):
        planned(times, [1000] * ROWS, [50] * ROWS)
