"""Runs of `simulate_sessions` as cells: each case runs once per seed, and its row has one figure per seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.store import Result, Row, measured
from simulator.sessions.session_run import MEASURED_S, WARM_UP_S, SessionSpec, run_sessions

SEEDS = (8, 9, 10, 11, 12, 13, 14)
"""Seeds that were not used to choose any constant of the rules."""
FIGURES = (
    "norm_ms_per_token", "tpot_ms", "ttft_mean_s", "ttft_p99_s", "requests_per_s", "max_over_mean_kv",
    "max_over_median_requests", "wasted_bytes",
)  # fmt: skip


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One system in one setting."""

    workload: str = "chat"
    system: str
    users: int
    options: dict[str, Any] = {}
    """Further fields of the run's SessionSpec."""
    figures: tuple[str, ...] = FIGURES


def cases(systems: Iterable[str], users: Iterable[int], workload: str = "chat", **options: Any) -> list[Case]:
    """Return every system at every number of users."""
    return [Case(workload=workload, system=system, users=user, options=options) for user in users for system in systems]


def run_case(case: Case, seeds: Sequence[int] = SEEDS) -> Row:
    """Run a case with every seed and return its row."""
    named: dict[str, Any] = {"workload": case.workload, "system": case.system, "users": case.users}
    reports = [run_sessions(SessionSpec(**named, seed=seed, **case.options)) for seed in seeds]
    return {**named, "options": case.options} | {
        name: [getattr(report, name) for report in reports] for name in case.figures
    }


def measure_cases(name: str, asked: list[Case], jobs: int, seeds: Sequence[int] = SEEDS) -> Result:
    """Run the cases and return them as the result `name`."""
    return measured(
        name=name,
        settings={"seeds": list(seeds), "warm_up_s": WARM_UP_S, "measured_s": MEASURED_S},
        rows=run_all(partial(run_case, seeds=seeds), asked, jobs=jobs, title=name),
    )
