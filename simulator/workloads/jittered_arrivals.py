"""The same requests at slightly different moments, to see which results depend on the exact ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec.structs import replace

from simulator.workloads.arrivals import Arrival


def jittered_arrivals(arrivals: Sequence[Arrival], jitter_s: float, seed: int) -> list[Arrival]:
    """Return the requests in their order, each up to `jitter_s` earlier or later, none before the beginning.

    No request overtakes the one before it, so turns of a session stay in their order.
    """
    # Apart from the generators that the bare seed begins.
    rng = random.Random(f"{seed}:jitter")
    moved: list[Arrival] = []
    last_s = 0.0
    for arrival in arrivals:
        last_s = max(last_s, arrival.request.arrived_s + rng.uniform(-jitter_s, jitter_s))
        moved.append(replace(arrival, request=replace(arrival.request, arrived_s=last_s)))
    return moved
