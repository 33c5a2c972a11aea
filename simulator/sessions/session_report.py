"""The figures of one session run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from simulator.sessions.turn import Turn

_WINDOW = 30
"""Number of samples over which an engine's KV tokens are averaged; a maximum of single samples would be noise."""


class SessionReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures of the requests that arrived in the measured period.

    An unanswered request counts with its waiting time so far, so times beyond saturation are lower bounds.
    """

    system: str
    workload: str
    users: int
    seed: int
    norm_ms_per_token: float
    """Mean time per output token, from arrival to end, over all requests."""
    tpot_ms: float
    ttft_mean_s: float
    ttft_p99_s: float
    requests_per_s: float
    """Requests answered per second in the measured period, regardless of when they arrived."""
    max_over_mean_kv: float
    """Most KV tokens in one engine's batch divided by the mean over all engines, in windows of 30 s."""
    max_over_median_requests: float
    """Most requests bound to one engine divided by the median over all engines (at least 1), each second."""
    wasted_bytes: float
    """Bytes that were prefetched to a node but not used by a request there."""
    disk_busy: float
    """Share of the disk bandwidth that KV caches used for reads and writes, over the whole run."""
    priority_tpot_ms: float | None = None
    """TPOT of sessions with priority; None if there are none."""
    priority_ttft_s: float | None = None
    regular_tpot_ms: float | None = None
    """TPOT of the other sessions, if some sessions have priority."""
    regular_ttft_s: float | None = None
    project_s: float | None = None
    """Mean time of each client's first project; None if clients are people."""


def report_of(
    system: str,
    workload: str,
    users: int,
    seed: int,
    turns: Sequence[Turn],
    samples: Sequence[Sequence[int]],
    requests: Sequence[Sequence[int]],
    *,
    now: float,
    requests_per_s: float,
    wasted_bytes: float,
    disk_busy: float = 0.0,
    projects_s: Sequence[float] = (),
) -> SessionReport:
    """Return the figures of a run that ends at `now`, with KV tokens and requests of each engine sampled each
    second.
    """
    ttft = sorted((turn.first_token_s or now) - turn.arrived_s for turn in turns)
    norm = [((turn.finished_s or now) - turn.arrived_s) / turn.answer_tokens for turn in turns]
    classes = {first: [turn for turn in turns if turn.session.priority == first] for first in (True, False)}
    by_class = {
        f"{name}_{figure}": value(classes[first], now)
        for first, name in ((True, "priority"), (False, "regular"))
        for figure, value in (("tpot_ms", _tpot_ms), ("ttft_s", _ttft_s))
        if classes[True]
    }
    return SessionReport(
        system=system,
        workload=workload,
        users=users,
        seed=seed,
        norm_ms_per_token=1e3 * fmean(norm) if norm else 0.0,
        tpot_ms=_tpot_ms(turns, now),
        ttft_mean_s=_ttft_s(turns, now),
        ttft_p99_s=ttft[int(0.99 * (len(ttft) - 1))] if ttft else 0.0,
        requests_per_s=requests_per_s,
        max_over_mean_kv=_max_over_mean(samples),
        max_over_median_requests=fmean([max(request) / max(1.0, median(request)) for request in requests])
        if requests
        else 1.0,
        wasted_bytes=wasted_bytes,
        disk_busy=disk_busy,
        project_s=fmean(projects_s) if projects_s else None,
        **by_class,
    )


def _tpot_ms(turns: Sequence[Turn], _now: float) -> float:
    tpot = [
        (turn.finished_s - turn.first_token_s) / (turn.answer_tokens - 1)
        for turn in turns
        if turn.finished_s is not None and turn.first_token_s is not None and turn.answer_tokens > 1
    ]
    return 1e3 * fmean(tpot) if tpot else 0.0


def _ttft_s(turns: Sequence[Turn], now: float) -> float:
    return fmean([(turn.first_token_s or now) - turn.arrived_s for turn in turns]) if turns else 0.0


def _max_over_mean(samples: Sequence[Sequence[int]]) -> float:
    ratios = []
    for first in range(0, len(samples), _WINDOW):
        sums = [sum(tokens) for tokens in zip(*samples[first : first + _WINDOW], strict=True)]
        if any(sums):
            ratios.append(max(sums) * len(sums) / sum(sums))
    return fmean(ratios) if ratios else 1.0
