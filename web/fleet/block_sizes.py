"""The banner on the Fleet and Engines pages about block sizes."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.pool_problems import BlockSizeProblem, block_size_problems
from gateway.contracts.fleet_sample import FleetSample


def seen_block_size_problems(pools: Iterable[Pool], sample: FleetSample | None) -> list[BlockSizeProblem]:
    """Return the block-size problems that the newest sample reports for these pools; empty without a sample."""
    engines = sample.engines if sample else ()
    return block_size_problems(pools, ((engine.pool_id, engine.name, engine.block_tokens) for engine in engines))
