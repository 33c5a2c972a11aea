"""The largest rate that each rule sustains, by requests, and by both requests and prompt tokens."""

from __future__ import annotations

from bench.evidence.cells import Cell, run_all, search_cell, settings
from bench.evidence.measure.routing.load_curves import RULES
from bench.evidence.store import Result, measured

GUESS = {"conversation": 11.0, "toolagent_like": 20.0}


def measure(jobs: int) -> Result:
    """Search the goodput of every rule on both traces."""
    cells = [
        Cell(trace=trace, placement=placement, order=order, qps=guess)
        for trace, guess in GUESS.items()
        for placement, order in RULES
    ]
    return measured(
        name="goodput",
        settings=settings() | {"on_time_share": 0.9},
        rows=run_all(search_cell, cells, jobs=jobs, title="goodput"),
    )
