"""Goodput in a second simulator, for each interpretation of what the scheduling study leaves open."""

from __future__ import annotations

import msgspec

from bench.evidence.cells import run_all, settings
from bench.evidence.measure.capacity.scale import TRACE, requests_for
from bench.evidence.second_simulator.placements import Reading
from bench.evidence.second_simulator.run import Asked, goodput, run
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import workload

TEXT = Reading()
"""The study's text, taken literally."""
OF_ORDERS = (
    TEXT,
    Reading(infeasible_wait=False),
    Reading(estimates="asked"),
    Reading(infeasible_coming=False),
    Reading(infeasible_wait=False, infeasible_coming=False),
)
OF_SGLANG = (TEXT, Reading(ties="first"), Reading(sent="all"), Reading(sent="all", ties="first"))
RINGS = range(6)
OF_DUAL_MAP = tuple(Reading(rings=rings) for rings in RINGS)
GUESS = {"conversation": {"late_last": 15.2, "slack": 16.1}, "toolagent_like": {"late_last": 30.0, "slack": 33.0}}
FIFO_GUESS = {"conversation": 11.0, "toolagent_like": 19.0}


LARGER, LARGER_QPS = 16, 44.0
"""Engines and load at which `sglang_cache_aware` collapsed in the study."""


class Cell(msgspec.Struct, frozen=True):
    """One search, or one run at the rate in a larger fleet."""

    trace: str
    asked: Asked
    guess_qps: float


def find(cell: Cell) -> Row:
    """Search both goodputs of one rule under one reading, or run it in a larger fleet for its share on time."""
    asked = cell.asked
    row: Row = {"trace": cell.trace, "placement": asked.placement, "order": asked.order, "engines": asked.engines}
    row |= msgspec.structs.asdict(asked.reading)
    if asked.engines == LARGER:
        return row | {"slo_share": run(asked, requests_for(LARGER).rows, cell.guess_qps).requests}
    by_requests, by_both = goodput(asked, workload(cell.trace).rows, cell.guess_qps)
    return row | {"goodput_qps": by_requests, "goodput_both_qps": by_both}


def measure(jobs: int) -> Result:
    """Search the goodput of every rule under every applicable reading, on both traces."""
    cells = [
        Cell(trace, Asked(placement="least_cost", order=order, reading=reading), guess)
        for trace, guesses in GUESS.items()
        for order, guess in guesses.items()
        for reading in OF_ORDERS
    ]
    cells += [
        Cell(trace, Asked(placement=placement, reading=reading), guess)
        for trace, guess in FIFO_GUESS.items()
        for placement, readings in (
            ("least_cost", (TEXT,)),
            ("sglang_cache_aware", OF_SGLANG),
            ("dual_map", OF_DUAL_MAP),
        )
        for reading in readings
    ]
    cells += [
        Cell(TRACE, Asked(placement="sglang_cache_aware", engines=LARGER, reading=reading), LARGER_QPS)
        for reading in OF_SGLANG[:2]
    ]
    return measured(
        name="readings",
        settings=settings(),
        rows=run_all(find, cells, jobs=jobs, title="readings"),
    )
