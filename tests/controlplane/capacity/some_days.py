"""Traffic of regions whose days are shifted against each other."""

from __future__ import annotations

import math
from random import Random

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.policies.models.policy import Policy
from tests.controlplane.request_log.recordings.traffic import START, record, row

STEP_S = 900
DAY_STEPS = 96
BEGIN = START - START % STEP_S
PEAKS = {"us": 0, "eu": 32, "asia": 64}
MOST = {"us": 1.0, "eu": 0.8, "asia": 0.5}
"""Height of a region's peak."""
LARGE = {"prompt_tokens": 120_000, "output_tokens": 2000, "cached_tokens": 0}


def pools() -> None:
    """Store one pool per region."""
    policy = Policy.objects.create(slug="capacity", name="P")
    for region in PEAKS:
        stored = Region.objects.create(slug=region, name=region)
        pool = Pool.objects.create(slug=f"chat-{region}", name=region, region=stored, served_model="m", policy=policy)
        url = f"http://{region}:8000"
        Engine.objects.create(pool=pool, name=region, engine_id=f"e-{region}", url=url, connect_url=url)


def days(count: float = 1.0, most: int = 9) -> float:
    """Record several days, one segment per step and region, and return their end (Unix seconds)."""
    steps, rng = int(count * DAY_STEPS), Random(1)
    for step in range(steps):
        begin = BEGIN + step * STEP_S
        for region, peak in PEAKS.items():
            height = (1 + math.cos(2 * math.pi * (step - peak) / DAY_STEPS)) / 2
            requests = 1 + round(height * MOST[region] * (most - 1) * rng.uniform(0.8, 1.2))
            record(
                [row(0, arrived_at=begin + 1.0 + number, pool=f"chat-{region}", **LARGE) for number in range(requests)]
            )
    # The last request ends the last step.
    record([row(0, arrived_at=BEGIN + steps * STEP_S + 1.0, pool="chat-us")])
    return BEGIN + steps * STEP_S
