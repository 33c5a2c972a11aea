"""The child process that searches: a SearchTask in, a SearchResult out. Its simulations run in processes of their own.

The trace is a file only while the search runs. It has lengths, times, and names of tenants, and no prompts.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections import deque
from pathlib import Path

import django
import msgspec

from controlplane.request_log.recordings.recorded_row import RecordedRow, Resalting
from controlplane.trials.whatif.comparison import closest, own_ttft_s
from planning.adviser.prediction import Practical
from planning.adviser.trace_windows import ShortTraceError
from planning.adviser.verdict import Advice
from routing.values.prepared_struct import prepared
from simulator.child_task import OnShare, serve_task
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.run_task import RunTask, do_task
from simulator.workloads.trace import TraceError

MOST_REQUESTS = 60_000
LEAST_REQUESTS = 1_000
"""Requests of a search; of more, the newest. The shortest window has about a sixteenth of them."""
FITTED_REQUESTS = 3_000
"""Requests that decide which simulated engine is closest to the recorded outcome."""
_WINDOW_SHARE = 3 / 16
"""Share of the trace in one run: a window and what fills its caches."""


class SearchEngine(msgspec.Struct, frozen=True):
    """An engine that may behave like the pool's."""

    engine_model: str
    profile: EngineProfile


class SearchTask(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for. Times are in unix seconds."""

    pool: str
    begin: float
    end: float
    version: int
    """Number of the live version."""
    source: RunTask
    """The live policy; its trace is `file`, which the child writes."""
    file: str
    engines: tuple[SearchEngine, ...]
    """The likeliest first."""
    budget_s: float
    jobs: int
    practical: Practical
    runs: int | None = None


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The advice, or why nothing was searched."""

    advice: Advice | None = None
    short: str = ""
    """Why there is too little traffic for a search."""
    begins_at: float = 0.0
    """Unix seconds at which the first request arrived; windows are relative to it."""
    requests: int = 0
    engines: int = 0
    engine_model: str = ""
    model_error: float | None = None
    """Relative error of the simulated mean TTFT of the live policy; None: it did not decide these requests."""


def searched(task: bytes, progress: OnShare) -> SearchResult:
    """Search the recorded traffic for a better policy."""
    from controlplane.request_log.recordings.kept_traces import written

    asked = msgspec.json.decode(task, type=prepared(SearchTask))
    rows = _rows(asked)
    if len(rows) < LEAST_REQUESTS:
        return SearchResult(short=f"{len(rows):,} new requests are recorded; {LEAST_REQUESTS:,} are needed")
    path = Path(asked.file)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    try:
        path.write_bytes(written(rows).packed)
        return _advised(asked, rows, progress)
    except ShortTraceError as error:
        return SearchResult(short=str(error))
    finally:
        path.unlink(missing_ok=True)


def _rows(asked: SearchTask) -> list[RecordedRow]:
    """Return the pool's requests in order of time, with the names of tenants."""
    # Here, because models can be imported only after Django's set-up.
    from controlplane.request_log.decision_search import tenants_by_digest
    from controlplane.request_log.store.segments import recorded_traffic

    tenants = tenants_by_digest()
    salted, newest = Resalting(secrets.token_bytes(32)), deque[RecordedRow](maxlen=MOST_REQUESTS)
    for row in recorded_traffic(asked.begin, asked.end):
        if row.pool == asked.pool and not (recorded := salted.recorded(row, asked.begin)).unread:
            newest.append(msgspec.structs.replace(recorded, tenant=tenants.get(row.tenant, recorded.tenant)))
    return sorted(newest, key=lambda row: row.timestamp)


def _advised(asked: SearchTask, rows: list[RecordedRow], progress: OnShare) -> SearchResult:
    # Here, because it imports Optuna, which no other process needs.
    from simulator.adviser.search import SECONDS_PER_REQUEST, AdvicePlan, advise

    recorded = sorted(row.engines for row in rows if row.engines)
    engines = recorded[len(recorded) // 2] if recorded else asked.source.spec.engines
    source = _with(msgspec.structs.replace(asked.source, trace=asked.file), engines=engines)
    number, error = _closest(asked, source, rows)
    engine = asked.engines[number]
    source = _with(source, engine_model=engine.engine_model, profile=engine.profile)
    plan = AdvicePlan(
        source=source, budget_s=asked.budget_s, runs=asked.runs, jobs=asked.jobs, practical=asked.practical
    )
    expected = asked.runs or max(1.0, asked.budget_s / (SECONDS_PER_REQUEST * _WINDOW_SHARE * len(rows)))
    return SearchResult(
        advice=advise(plan, lambda runs: progress(min(0.99, runs / expected))),
        begins_at=asked.begin + rows[0].timestamp / 1000,
        requests=len(rows),
        engines=engines,
        engine_model=engine.engine_model,
        model_error=error,
    )


def _closest(asked: SearchTask, source: RunTask, rows: list[RecordedRow]) -> tuple[int, float | None]:
    """Return the number of the engine closest to the recorded outcome, and the error of its mean TTFT."""
    fitted = rows[:FITTED_REQUESTS]
    warmup = len(fitted) // 5
    actual_s = own_ttft_s(fitted[warmup:], asked.version)
    if actual_s is None:
        return 0, None
    source = _with(msgspec.structs.replace(source, requests=len(fitted)), warmup=warmup)
    reports = [do_task(_with(source, engine_model=item.engine_model, profile=item.profile)) for item in asked.engines]
    number = closest(reports, actual_s)
    simulated_s = reports[number].ttft_mean_s
    return number, None if simulated_s is None else abs(simulated_s / actual_s - 1)


def _with(task: RunTask, **spec: object) -> RunTask:
    return msgspec.structs.replace(task, spec=msgspec.structs.replace(task.spec, **spec))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    django.setup()
    sys.exit(serve_task(sys.argv[1:], searched, (TraceError,)))
