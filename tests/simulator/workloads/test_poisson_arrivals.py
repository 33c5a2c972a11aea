from __future__ import annotations

from itertools import islice, pairwise
from random import Random
from statistics import mean, pstdev

import pytest

from simulator.workloads.poisson_arrivals import poisson_arrivals, poisson_times
from tests.simulator.fleets import chat


def test_gaps_have_the_mean_and_spread_of_a_poisson_process() -> None:
    gaps = [later - sooner for sooner, later in pairwise(islice(poisson_times(Random(1), 4.0), 20_000))]
    assert mean(gaps) == pytest.approx(0.25, rel=0.03)
    assert pstdev(gaps) == pytest.approx(0.25, rel=0.03)


def test_requests_keep_their_order_and_all_fields_except_their_times() -> None:
    arrivals = chat(50).arrivals(None, 5.0)
    timed = poisson_arrivals(arrivals, 10.0, 3)
    assert [item.request.request_id for item in timed] == [arrival.request.request_id for arrival in arrivals]
    times = [item.request.arrived_s for item in timed]
    assert times == sorted(times)
    assert poisson_arrivals(arrivals, 10.0, 3) == timed != poisson_arrivals(arrivals, 10.0, 4)


def test_a_rate_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="above 0"):
        next(poisson_times(Random(1), 0.0))
