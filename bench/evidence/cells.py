"""Simulations as cells of a table. Each cell is a value, so cells can run in parallel on all cores."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec
from tqdm import tqdm

from bench.evidence.rules import order_stage
from bench.evidence.store import Row
from bench.evidence.traces import MAX_INPUT, TRACES, WARMUP, workload
from routing.policy.policy_document import Parameter, Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.goodput import find_goodput
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

SLO_TTFT_S = 5.0
ENGINES = 8

_LEFT_OUT = ("wall_s", "detail", "placement", "order", "engines", "qps")


class Cell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One simulation. `label` identifies it if placement and order do not."""

    trace: str
    placement: str
    order: str = "fifo"
    qps: float
    engines: int = ENGINES
    engine_model: str = "reference"
    placement_params: dict[str, Parameter] = {}
    order_params: dict[str, Parameter] = {}
    eviction: Literal["lru", "rlt"] = "lru"
    label: str = ""
    series: bool = False
    seed: int = 0


def settings() -> Row:
    """Return the settings that all cells share."""
    return {
        "traces": {name: f"first {rows:,} rows of {file}" for name, (file, rows) in TRACES.items()},
        "warmup": WARMUP,
        "max_input_tokens": MAX_INPUT,
        "slo_ttft_s": SLO_TTFT_S,
        "engines": ENGINES,
        "engine_model": "reference",
    }


def spec_of(cell: Cell) -> RunSpec:
    """Return the run of a cell."""
    policy = evaluation_policy(
        Stage(name=cell.placement, params=cell.placement_params),
        order_stage(cell.order, cell.order_params),
        ttft_slo_s=SLO_TTFT_S,
    )
    return RunSpec(
        policy=policy,
        engines=cell.engines,
        qps=cell.qps,
        warmup=WARMUP,
        engine_model=cell.engine_model,
        profile=EngineProfile(eviction=cell.eviction),
        transfers=True,
        keep_series=cell.series,
        seed=cell.seed,
    )


def run_cell(cell: Cell) -> Row:
    """Run one cell and return its row: the cell's values and the figures of the run."""
    spec, rows = spec_of(cell), workload(cell.trace)
    report = report_of(spec, rows, run(spec, rows), 0.0)
    figures = {name: value for name, value in msgspec.to_builtins(report).items() if name not in _LEFT_OUT}
    row = names_of(cell) | figures
    detail = msgspec.to_builtins(report)["detail"]
    row["bands"] = [[band["to_tokens"], band["slo_share"]] for band in detail["bands"]]
    if cell.series:
        row["series"] = detail["series"]
    return row


def search_cell(cell: Cell, rows: Workload | None = None) -> Row:
    """Search for the largest rate with 90 % on time, starting at the cell's rate. The row has no rate of its own."""
    goodput = find_goodput(spec_of(cell), workload(cell.trace) if rows is None else rows)
    row = names_of(cell)
    del row["qps"]
    return row | {"goodput_qps": goodput.by_requests, "goodput_both_qps": goodput.by_both}


def names_of(cell: Cell) -> Row:
    """Return the values that identify a cell, as the beginning of its row."""
    named: Row = msgspec.to_builtins(cell)
    return {"order": cell.order, "engines": cell.engines, "label": cell.label or cell.placement} | named


def run_all(do: Callable[[Asked], Answer], asked: Sequence[Asked], *, jobs: int, title: str) -> list[Answer]:
    """Return `do` of each item in order, computed in `jobs` processes, with a progress bar."""
    if jobs <= 1:
        return [do(item) for item in tqdm(asked, desc=title, disable=None)]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return list(tqdm(pool.imap(do, asked), total=len(asked), desc=title, disable=None))
