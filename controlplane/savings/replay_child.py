"""The child process that reads a pool's day from the request log and replays it: a DayTask in, a DayResult out."""

from __future__ import annotations

import os
import sys
from array import array
from statistics import fmean, mode

import django
import msgspec

from gateway.contracts.traffic_row import TrafficRow
from planning.savings.day_windows import DayWindow, day_windows
from routing.values.prepared_struct import prepared
from simulator.child_task import OnShare, serve_task
from simulator.savings.day_replay import DayQuestion, DayRuns, WindowTraffic, replay_day
from simulator.workloads.trace import TraceRow

DAY_S = 86_400.0
NO_EVIDENCE = ("cancelled", "client_error", "running")
"""Outcomes that say nothing about a policy."""


class DayTask(msgspec.Struct, frozen=True, kw_only=True):
    """One pool on one day."""

    pool: str
    begin: float
    """Unix seconds."""
    tenants: dict[str, str]
    """Digest of each tenant in the log → its slug."""
    engines: int
    """Number of engines for requests without one."""
    question: DayQuestion


class DayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded day and its replay."""

    requests: int
    windows: int
    """Windows with enough traffic, of which `replay` may contain fewer."""
    recorded_late: float | None = None
    versions: tuple[int, ...] = ()
    replay: DayRuns | None = None


def replayed(encoded: bytes, progress: OnShare) -> DayResult:
    """Read the day twice, so that only the windows' requests are in memory, and replay them."""
    # Here, because models can be imported only after Django's set-up.
    from controlplane.request_log.store.segments import recorded_traffic

    task = msgspec.json.decode(encoded, type=prepared(DayTask))

    def usable(row: TrafficRow) -> bool:
        return row.pool == task.pool and row.prompt_tokens > 0

    end = task.begin + DAY_S
    times = array("d", sorted(row.arrived_at for row in recorded_traffic(task.begin, end) if usable(row)))
    windows = day_windows(times)
    if not windows:
        return DayResult(requests=len(times), windows=0)
    spans = [(times[window.first], times[window.last - 1]) for window in windows]
    rows: list[list[TrafficRow]] = [[] for _ in windows]
    for row in recorded_traffic(task.begin, end):
        for (first, last), taken in zip(spans, rows, strict=True):
            if first <= row.arrived_at <= last and usable(row):
                taken.append(row)
    traffic, late = [], []
    for window, taken in zip(windows, rows, strict=True):
        taken.sort(key=lambda row: row.arrived_at)
        traffic.append(_traffic(task, window, taken))
        judged = [row.late for row in taken[window.warmup :] if row.outcome not in NO_EVIDENCE]
        late.append((sum(judged) / max(1, len(judged)), window.requests))
    return DayResult(
        requests=len(times),
        windows=len(windows),
        recorded_late=sum(share * weight for share, weight in late) / sum(weight for _, weight in late),
        versions=tuple(sorted({item.version for item in traffic})),
        replay=replay_day(task.question, traffic, progress),
    )


def _traffic(task: DayTask, window: DayWindow, rows: list[TrafficRow]) -> WindowTraffic:
    counted = rows[window.warmup :]
    ttfts = [row.first_token_after_s for row in counted if row.first_token_after_s is not None]
    begin = rows[0].arrived_at
    return WindowTraffic(
        window=window,
        rows=[
            TraceRow(
                timestamp=(row.arrived_at - begin) * 1000,
                input_length=row.prompt_tokens,
                output_length=row.output_tokens or 0,
                hash_ids=row.blocks,
                session_id=row.session or None,
                tenant=task.tenants.get(row.tenant, ""),
                priority=row.priority,
                head_ids=row.head,
            )
            for row in rows
        ],
        version=mode(row.policy_version for row in counted),
        engines=mode(row.engines or task.engines for row in counted),
        ttft_s=fmean(ttfts) if ttfts else None,
    )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    django.setup()
    sys.exit(serve_task(sys.argv[1:], replayed))
