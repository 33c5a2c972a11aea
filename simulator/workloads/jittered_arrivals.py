"""The same requests at slightly different times, to see which results depend on exact times."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec.structs import replace

from simulator.workloads.arrivals import Arrival


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
