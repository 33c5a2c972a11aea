"""When a simulation's requests arrive: as in their trace, as a Poisson process, or as clients receive responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.workloads.arrivals import Arrival, ArrivalSource, FixedArrivals
from simulator.workloads.closed_loop import ClosedLoop
from simulator.workloads.jittered_arrivals import jittered_arrivals
from simulator.workloads.poisson_arrivals import poisson_arrivals

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
