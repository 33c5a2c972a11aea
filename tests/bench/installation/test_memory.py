"""The memory benchmark: its slope, its warm-up, and a load that two cores can serve."""

from __future__ import annotations

import pytest

from bench.installation.memory import MAX_OUTPUT, MIN_WARM_MIN, PASS_S, QPS, rows_of, slope, warm_min
from kvstore.keys.block_keys import TOKEN_BYTES
from simulator.replay.replay_request import prompt_text


def test_slope_is_that_of_the_regression_line() -> None:
    assert slope([(at, 100.0 + 0.25 * at + (at % 2)) for at in range(100)]) == pytest.approx(0.25, abs=0.01)


def test_warm_up_takes_at_most_half_of_a_short_run() -> None:
    assert warm_min(10.0) == 5.0
    assert warm_min(60.0) == MIN_WARM_MIN
    assert warm_min(120.0) == 30.0


@pytest.mark.parametrize("tokens", [1024, 8192])
def test_prompts_have_the_given_length_and_arrive_at_the_given_rate(tokens: int) -> None:
    rows = rows_of(QPS, tokens)
    assert len(rows) / (rows[-1].timestamp / 1000) == pytest.approx(QPS, rel=0.2)
    assert len(rows) == QPS * PASS_S
    assert {len(prompt_text(row, number)) // TOKEN_BYTES for number, row in enumerate(rows[:50])} == {tokens}
    assert max(row.output_length for row in rows) <= MAX_OUTPUT
