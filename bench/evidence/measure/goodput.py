"""The largest rate that each rule sustains, by requests and by requests and prompt tokens."""

from __future__ import annotations

from bench.evidence.cells import Cell, names_of, run_all, settings, spec_of
from bench.evidence.measure.load_curves import RULES
from bench.evidence.store import Result, Row
from bench.evidence.traces import workload
from simulator.runs.goodput import find_goodput

GUESS = {"conversation": 11.0, "toolagent_like": 20.0}


def find(cell: Cell) -> Row:
    """Search the goodput of one rule from the cell's rate on."""
    found = find_goodput(spec_of(cell), workload(cell.trace))
    row = names_of(cell)
    del row["qps"]
    return row | {"goodput_qps": found.by_requests, "goodput_both_qps": found.by_both}


def measure(jobs: int) -> Result:
    """Search the goodput of every rule on both traces."""
    cells = [
        Cell(trace=trace, placement=placement, order=order, qps=guess)
        for trace, guess in GUESS.items()
        for placement, order in RULES
    ]
    return Result(
        name="goodput",
        command="python -m bench.evidence --measure goodput",
        settings=settings() | {"on_time_share": 0.9},
        rows=run_all(find, cells, jobs=jobs, title="goodput"),
    )
