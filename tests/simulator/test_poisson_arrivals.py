from __future__ import annotations

from itertools import islice, pairwise
from random import Random
from statistics import mean, pstdev

import pytest

from simulator.poisson_arrivals import poisson_rows, poisson_times
from simulator.trace import TraceRow


def test_gaps_have_the_mean_and_the_spread_of_a_poisson_process() -> None:
    gaps = [later - sooner for sooner, later in pairwise(islice(poisson_times(Random(1), 4.0), 20_000))]
    assert mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert pstdev(gaps) == pytest.approx(0.25, rel=0.03)


def test_rows_keep_their_order_and_all_but_their_times() -> None:
    rows = [TraceRow(timestamp=0, input_length=5 + number, output_length=1, hash_ids=(number,)) for number in range(50)]
    timed = poisson_rows(rows, 10.0, 3)
    assert [row.input_length for row in timed] == [row.input_length for row in rows]
    assert [row.timestamp for row in timed] == sorted(row.timestamp for row in timed)
    assert poisson_rows(rows, 10.0, 3) == timed != poisson_rows(rows, 10.0, 4)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        next(poisson_times(Random(1), 0.0))
