"""Poisson arrivals: independent gaps with a given mean, for generated requests and for a trace's requests."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from simulator.workloads.arrivals import Arrival


def poisson_times(rng: random.Random, qps: float) -> Iterator[float]:
    """Yield an endless sequence of arrival times in seconds at a mean rate; raise ValueError unless `qps` is above
    0.
    """
    if qps <= 0:
        raise ValueError(f"a rate must be above 0 requests per second, not {qps}")
    at_s = 0.0
    while True:
        at_s += rng.expovariate(qps)
        yield at_s


def poisson_arrivals(arrivals: Sequence[Arrival], qps: float, seed: int) -> list[Arrival]:
    """Return the requests in order, with Poisson arrivals instead of their own times."""
    times = poisson_times(random.Random(seed), qps)
    return [
        replace(arrival, request=replace(arrival.request, arrived_s=at_s))
        for arrival, at_s in zip(arrivals, times, strict=False)
    ]
