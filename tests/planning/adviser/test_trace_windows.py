from itertools import combinations

import pytest

from planning.adviser.trace_windows import BUSIEST, ODD, QUIETEST, TYPICAL, ShortTraceError, window_plan

ROWS = 2400
TIMES = [0.1 * number for number in range(ROWS)]


def test_no_window_has_two_uses_and_each_has_its_warmup() -> None:
    plan = window_plan(TIMES, [1000] * ROWS, [50] * ROWS)
    windows = [*plan.search, *plan.predict, *plan.check]
    assert len(windows) == 14
    for one, other in combinations(windows, 2):
        counted = [set(range(item.first + item.warmup, item.last)) for item in (one, other)]
        assert not counted[0] & counted[1]
    assert all(item.warmup == pytest.approx(2 * item.requests, abs=2) for item in windows)
    assert min(len(plan.predict), len(plan.check)) >= 3


def test_busy_quiet_and_odd_windows_are_named() -> None:
    # Windows of 150 rows.
    prompts, outputs = [1000 + 10 * (number // 150 % 5) for number in range(ROWS)], [50] * ROWS
    prompts[600:750] = [4000] * 150
    prompts[900:1050] = [100] * 150
    outputs[1200:1350] = [2000] * 150
    starts = {item.kind: item.first + item.warmup for item in window_plan(TIMES, prompts, outputs).search}
    assert list(starts) == [BUSIEST, TYPICAL, QUIETEST, ODD]
    assert starts[BUSIEST] == pytest.approx(600, abs=2)
    assert starts[QUIETEST] == pytest.approx(900, abs=2)
    assert starts[ODD] == pytest.approx(1200, abs=2)


@pytest.mark.parametrize("rows", [0, 1, 200])
def test_a_short_trace_is_an_error(rows: int) -> None:
    with pytest.raises(ShortTraceError, match="windows of 30 requests"):
        window_plan(TIMES[:rows], [1000] * rows, [50] * rows)


def test_windows_with_few_requests_are_left_out() -> None:
    times = [number * 0.1 if number < 2000 else 1000 + number for number in range(ROWS)]
    with pytest.raises(ShortTraceError):
        window_plan(times, [1000] * ROWS, [50] * ROWS)
