"""Carries out the runs of a what-if, several at once in child processes, and makes its answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import msgspec

from controlplane.whatif.comparison import bands_of, differences_of, model_error, side_of, what_happened
from controlplane.whatif.plan import BASE, DRAFT, WhatIfPlan
from controlplane.whatif.result import WhatIfResult
from simulator.run_report import RunReport
from simulator.whatif import run_in_child

MAX_RUN_S = 3600.0
MAX_AT_ONCE = 8
LOOK_S = 0.5

Reports = dict[str, RunReport]
"""By run_name."""


class StoppedError(RuntimeError):
    """The runs were ended before all were done."""


def run_name(side: str, seed: int) -> str:
    """Return by what a run is known."""
    return f"{side}:{seed}"


def carry_out(
    plan: WhatIfPlan,
    done: Reports,
    *,
    on_look: Callable[[float, Reports], bool],
    at_once: int | None = None,
) -> WhatIfResult:
    """Do all runs that are not in `done` and return the answer.

    `on_look` is told twice a second which share is done, 0..1, and all reports so far; where it returns False the
    runs end and StoppedError is raised. Raises simulator.whatif.WhatIfError where a run fails.
    """
    reports = dict(done)
    missing = [(side, seed) for side, seed in plan.names() if run_name(side, seed) not in reports]
    shares = {run_name(*each): 1.0 if run_name(*each) in reports else 0.0 for each in plan.names()}
    stopping = threading.Event()

    def run(side: str, seed: int) -> RunReport:
        name = run_name(side, seed)

        def progress(share: float) -> None:
            shares[name] = min(share, 1.0)

        return run_in_child(plan.task(side, seed), max_s=MAX_RUN_S, on_progress=progress, cancelled=stopping.is_set)

    with ThreadPoolExecutor(max_workers=at_once or min(os.cpu_count() or 1, MAX_AT_ONCE)) as pool:
        running: dict[Future[RunReport], str] = {}
        try:
            running = {pool.submit(run, *each): run_name(*each) for each in missing}
            while running:
                ended, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                for each in ended:
                    reports[running.pop(each)] = each.result()
                if not on_look(sum(shares.values()) / len(shares), reports):
                    raise StoppedError("the what-if was ended before all of its runs were done")
        finally:
            stopping.set()
            for each in running:
                each.cancel()
    return answer_of(plan, reports)


def answer_of(plan: WhatIfPlan, reports: Reports) -> WhatIfResult:
    """Return the answer that the reports of all runs give."""
    seeds = range(plan.conditions.seeds)
    base, draft = ([reports[run_name(side, seed)] for seed in seeds] for side in (BASE, DRAFT))
    happened = what_happened(plan.counted, plan.base.ttft_slo_s)
    actual, actual_bands = happened if happened is not None else (None, None)
    base_side = side_of(base)
    return WhatIfResult(
        requests=len(plan.rows),
        counted=len(plan.counted),
        seeds=plan.conditions.seeds,
        engines=plan.engines,
        engine_model=plan.conditions.engine_model,
        costs=plan.engine.costs,
        kv_tokens=plan.engine.kv_tokens,
        ttft_slo_s=plan.base.ttft_slo_s,
        base=base_side,
        draft=side_of(draft),
        differences=differences_of(base, draft),
        bands=bands_of(base, draft, actual_bands),
        actual=actual,
        model_error=model_error(base_side, actual, plan.counted, plan.base_version),
        cpu_s=round(sum(each.wall_s for each in reports.values()), 3),
    )


def reports_as_json(reports: Reports) -> dict[str, object]:
    """Return the reports as JSON holds them, for a run that is taken up again."""
    told: dict[str, object] = msgspec.to_builtins(reports)
    return told


def reports_from_json(value: object) -> Reports:
    """Return stored reports; those that cannot be read are run anew."""
    try:
        return msgspec.convert(value, Reports)
    except msgspec.ValidationError:
        return {}
