"""When a simulation's requests arrive: as in their trace (exactly or slightly shifted, to see which results depend on
exact times), as a Poisson process of independent gaps, or as clients receive responses.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator.workloads.arrivals import Arrival, ArrivalSource, FixedArrivals
from simulator.workloads.closed_loop import ClosedLoop


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


def jittered_arrivals(arrivals: Sequence[Arrival], jitter_s: float, seed: int) -> list[Arrival]:
    """Return the requests in order, each shifted by up to `jitter_s`, but none before the beginning.

    No request overtakes the one before it, so the turns of a session stay in order.
    """
    # Apart from the generators that the bare seed begins.
    rng = random.Random(f"{seed}:jitter")
    moved: list[Arrival] = []
    last_s = 0.0
    for arrival in arrivals:
        last_s = max(last_s, arrival.request.arrived_s + rng.uniform(-jitter_s, jitter_s))
        moved.append(replace(arrival, request=replace(arrival.request, arrived_s=last_s)))
    return moved


Kind = Literal["trace", "poisson", "closed"]


class ArrivalPattern(msgspec.Struct, frozen=True, kw_only=True):
    """The arrival process. Only a closed loop uses `clients` and `think_s` (mean think time in seconds)."""

    kind: Kind = "trace"
    clients: Annotated[int, Meta(ge=1)] = 8
    think_s: Annotated[float, Meta(ge=0)] = 0.0
    jitter_s: Annotated[float, Meta(ge=0)] = 0.0
    """Maximum shift of a trace's arrivals, earlier or later; the seed determines the shifts."""

    def source(self, arrivals: Sequence[Arrival], qps: float | None, seed: int) -> ArrivalSource:
        """Return the requests with this pattern; `arrivals` have their trace's times already.

        Raises ValueError for Poisson arrivals without a rate.
        """
        if self.kind == "closed":
            return ClosedLoop(arrivals, clients=self.clients, think_s=self.think_s, seed=seed)
        if self.kind == "trace":
            return FixedArrivals(jittered_arrivals(arrivals, self.jitter_s, seed) if self.jitter_s else arrivals)
        if qps is None:
            raise ValueError("Poisson arrivals need a rate: set qps")
        return FixedArrivals(poisson_arrivals(arrivals, qps, seed))
