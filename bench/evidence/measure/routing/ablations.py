"""DualMap with one change at a time (§4.3, Fig. 5; A.9 for the number of candidates)."""

from __future__ import annotations

from bench.evidence.cells import Cell, run_all, run_cell, search_cell, settings
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import MAX_INPUT, TRACES, trace_file
from routing.policy.policy_document import Parameter
from simulator.workloads.prepared_workload import Workload

LOADS = {"conversation": (9.0, 10.0, 11.0, 12.0), "toolagent_like": (16.0, 18.0, 19.0, 20.0)}
GUESS = {"conversation": 10.5, "toolagent_like": 18.5}

FULL = "DualMap"
WITHOUT_REBALANCE = "slo, no rebalance"
PAPER: dict[str, dict[str, Parameter]] = {
    "affinity": {"selection": "affinity", "rebalance": False},
    "least_loaded": {"selection": "least_loaded", "rebalance": False},
    "min_ttft": {"selection": "min_ttft", "rebalance": False},
    WITHOUT_REBALANCE: {"rebalance": False},
    FULL: {},
}
"""The five configurations of Fig. 5, by their names here."""
KEYS_AND_RINGS: dict[str, dict[str, Parameter]] = {
    "static key": {"adaptive_key": False},
    "1 virtual node": {"virtual_nodes": 1},
    "10 virtual nodes": {"virtual_nodes": 10},
}
CHOICES = (1, 2, 3, 4, 8)
CHOICE_RULES = ("slo", "min_ttft")
"""Selections under which the number of candidates varies."""


LUCKY, LUCK_SEEDS = (FULL, "1 virtual node"), 4
"""Configurations whose goodput is also searched with other keys."""


def choice_name(selection: str, d: int) -> str:
    """Return the name of the configuration with d candidates."""
    return f"{selection}, d = {d}"


VARIANTS: dict[str, dict[str, Parameter]] = (
    PAPER
    | KEYS_AND_RINGS
    | {
        choice_name(selection, d): {"selection": selection, "d": d, "rebalance": selection == "slo"}
        for selection in CHOICE_RULES
        for d in CHOICES
    }
)


def measure(jobs: int) -> Result:
    """Run every configuration at every load, and search its goodput."""
    cells = [
        Cell(trace=trace, placement="dual_map", placement_params=params, qps=qps, label=name)
        for trace, loads in LOADS.items()
        for name, params in VARIANTS.items()
        for qps in loads
    ]
    searches = [
        Cell(trace=trace, placement="dual_map", placement_params=params, qps=guess, label=name)
        for trace, guess in GUESS.items()
        for name, params in VARIANTS.items()
    ]
    rows = run_all(at_one_load, cells, jobs=jobs, title="ablations")
    rows += run_all(goodput, searches, jobs=jobs, title="ablations, goodput")
    rows += run_all(goodput_of_keys, luck_cells(), jobs=jobs, title="ablations, other keys")
    return measured(name="ablations", settings=settings(), rows=rows)


def luck_cells() -> list[Cell]:
    """Return searches in which the same prompts get other keys, and thus other positions on the rings."""
    return [
        Cell(trace=trace, placement="dual_map", placement_params=VARIANTS[name], qps=guess, label=name, seed=seed)
        for trace, guess in GUESS.items()
        for name in LUCKY
        for seed in range(1, LUCK_SEEDS + 1)
    ]


def at_one_load(cell: Cell) -> Row:
    """Run one configuration at one load."""
    row = run_cell(cell)
    del row["bands"]
    return {"kind": "load"} | row


def goodput(cell: Cell) -> Row:
    """Search for the largest rate with 90 % on time, starting at the cell's rate."""
    row: Row = {"kind": "goodput"}
    return row | search_cell(cell)


def goodput_of_keys(cell: Cell) -> Row:
    """Search for the same rate with the keys of the cell's seed."""
    rows = TRACES[cell.trace][1]
    keyed = Workload.read(trace_file(cell.trace), requests=rows, max_input=MAX_INPUT, seed=cell.seed)
    row: Row = {"kind": "keys"}
    return row | search_cell(cell, keyed)
