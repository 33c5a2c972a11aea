"""Goodput: the largest mean rate, to one decimal, at which enough requests and prompt tokens are on time.

Counting prompt tokens as well prevents policies from shedding long prompts (research on scheduling §3).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from simulator.fleet.fleet_simulation import FleetSimulation, Watch
from simulator.fleet.request_record import UNFINISHED
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload

SHARE = 0.9
_GROWTH = 1.3
_TRIED_BEYOND = 3
"""Number of rates, in steps of 0.1, tried above the last passing one: near the limit a rate can fail by chance."""
_MOST_TENTHS = 1_000_000


class Goodput(msgspec.Struct, frozen=True):
    """Rates in requests per second; 0 if even 0.1 is too high."""

    by_requests: float
    by_both: float
    runs: int


class _Verdict(msgspec.Struct, frozen=True):
    requests: bool
    both: bool


class LateWatch:
    """Ends a run once so many requests are late that the required on-time share can no longer be reached.

    Mutable state: `_at` (requests checked, in order of arrival) and `_late`.
    """

    def __init__(self, total: int, warmup: int) -> None:
        self._most = (total - warmup) * (1 - SHARE)
        self._at = warmup
        self._late = 0

    def __call__(self, simulation: FleetSimulation) -> bool:
        """Count the requests past their deadline. All requests have the same SLO, so deadlines are in order of
        arrival.
        """
        history = simulation.history
        while self._at < len(history):
            record = history[self._at]
            deadline = record.request.deadline_s
            if record.status == UNFINISHED and record.first_token_s is None and deadline >= simulation.now:
                break
            self._late += record.first_token_s is None or record.first_token_s > deadline
            self._at += 1
        # 1 − 0.9 is not exact in binary.
        return self._late > self._most + 1e-9


def find_goodput(spec: RunSpec, workload: Workload, on_run: Callable[[float, bool], None] | None = None) -> Goodput:
    """Search for both goodputs. `on_run` receives each tried rate, and whether it passed by requests."""
    # In tenths: whole numbers, on which bisection and dict are exact.
    known: dict[int, _Verdict] = {}

    def verdict(tenths: int) -> _Verdict:
        if tenths not in known:
            known[tenths] = _judge(msgspec.structs.replace(spec, qps=tenths / 10, keep_series=False), workload)
            if on_run is not None:
                on_run(tenths / 10, known[tenths].requests)
        return known[tenths]

    guess = max(1, round((spec.qps if spec.qps is not None else float(spec.engines)) * 10))
    by_requests = largest(lambda tenths: verdict(tenths).requests, guess)
    by_both = largest(lambda tenths: verdict(tenths).both, max(1, by_requests))
    return Goodput(by_requests / 10, by_both / 10, len(known))


def largest(passes: Callable[[int], bool], guess: int) -> int:
    """Return the largest number ≥ 1 that passes, 0 if none does: bracket from the guess, bisect, and try higher ones.

    `passes` can fluctuate near its limit. After the bisection, a few higher numbers are tried, and again a few after
    each one that passes.
    """
    low, high = 0, guess
    while high <= _MOST_TENTHS and passes(high):
        # Below 4 tenths, growth by a factor rounds to nothing.
        low, high = high, max(high + 1, int(high * _GROWTH))
    if not low:
        low, high = _below(passes, high)
    while high - low > 1:
        middle = (low + high) // 2
        if passes(middle):
            low = middle
        else:
            high = middle
    beyond = low + 1
    while low and beyond <= low + _TRIED_BEYOND:
        if passes(beyond):
            low = beyond
        beyond += 1
    return low


def _below(passes: Callable[[int], bool], high: int) -> tuple[int, int]:
    """Return a passing number (0 if none passes) and a failing number above it."""
    low = int(high / _GROWTH)
    while low and not passes(low):
        low, high = int(low / _GROWTH), low
    return low, high


def _judge(spec: RunSpec, workload: Workload) -> _Verdict:
    watch: Watch | None = LateWatch(len(workload), spec.warmup)
    simulation = run(spec, workload, watch)
    # The watch has ended the run.
    if simulation.unfinished or len(simulation.history) < len(workload):
        return _Verdict(requests=False, both=False)
    report = report_of(spec, workload, simulation, 0.0)
    by_requests = report.slo_share >= SHARE
    return _Verdict(requests=by_requests, both=by_requests and report.slo_token_share >= SHARE)
