"""The live fleet against the simulator. Only this measurement here is disturbed by a busy machine."""

from __future__ import annotations

import asyncio

from bench.evidence.store import Result, Row, measured
from bench.live.paired_simulation import ENGINES, PLACEMENTS, pairs, rows_of

ROWS, QPS, SPEED = 240, 7.0, 1.5
MAX_INPUT, MAX_OUTPUT, SEED = 16_384, 24, 5


def measure(jobs: int) -> Result:
    """Run the same rows live and simulated under three placements."""
    rows = rows_of(ROWS, QPS, MAX_INPUT, MAX_OUTPUT, SEED)
    made: list[Row] = [
        {
            "placement": pair.placement,
            "live_ttft_mean_s": pair.live.ttft_mean_s,
            "simulated_ttft_mean_s": pair.simulated.ttft_mean_s,
            "live_hit_rate": pair.live.hit_rate,
            "simulated_hit_rate": pair.simulated.hit_rate,
        }
        for pair in asyncio.run(pairs(rows, PLACEMENTS, SPEED))
    ]
    return measured(
        name="paired_simulation",
        settings={"rows": ROWS, "qps": QPS, "speed": SPEED, "engines": ENGINES, "seed": SEED},
        rows=made,
    )
