"""How evenly d candidates per key can be filled, without caches (DualMap A.9, Fig. 15): balls into bins.

Every ball has a distinct key and goes to the emptiest of its candidates, on the hash rings used by routing.
"""

from __future__ import annotations

import random
from statistics import fmean
from typing import Literal

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.store import Result, Row, measured
from routing.rings.hash_ring import CandidateRings

CHOICES = (1, 2, 3, 4)
SIZES = (8, 16, 24, 32)
PER_ENGINE = 1000
SEEDS = 10
BINS: tuple[Literal["uniform", "100 nodes", "1 node"], ...] = ("uniform", "100 nodes", "1 node")
"""Candidates drawn at random, or by rings with this number of virtual nodes per engine."""


class Throw(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    bins: Literal["uniform", "100 nodes", "1 node"]
    d: int
    engines: int


def measure(jobs: int) -> Result:
    """Throw balls for every setting."""
    throws = [Throw(bins=bins, d=d, engines=engines) for bins in BINS for engines in SIZES for d in CHOICES]
    return measured(
        name="choices",
        settings={"requests_per_engine": PER_ENGINE, "seeds": SEEDS},
        rows=run_all(deviation, throws, jobs=jobs, title="choices"),
    )


def deviation(throw: Throw) -> Row:
    """Return the fullest engine's requests above the mean, averaged over the seeds."""
    named: Row = msgspec.to_builtins(throw)
    return named | {"max_deviation": fmean(_fullest(throw, seed) - PER_ENGINE for seed in range(SEEDS))}


def _fullest(throw: Throw, seed: int) -> int:
    rng = random.Random(f"{throw.bins} {throw.d} {throw.engines} {seed}")
    loads = [0] * throw.engines
    rings = None
    if throw.bins != "uniform":
        ids = [f"{seed}-{number}" for number in range(throw.engines)]
        rings = CandidateRings(ids, rings=throw.d, virtual_nodes=int(throw.bins.split()[0]))
    everyone = range(throw.engines)
    for _ in range(PER_ENGINE * throw.engines):
        candidates = rings.candidates(rng.getrandbits(64)) if rings is not None else rng.sample(everyone, throw.d)
        loads[min(candidates, key=lambda candidate: (loads[candidate], candidate))] += 1
    return max(loads)
