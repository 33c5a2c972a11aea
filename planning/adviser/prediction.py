"""What a candidate would change, with a range: paired differences between runs on equal requests with equal seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

SHARE, RATIO = "share", "ratio"
COVERAGE = 0.9
# Student's t at 95 %, by degrees of freedom from 1; a trace has fewer windows than that.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)


class AdviceObjective(msgspec.Struct, frozen=True):
    """One figure of a run: its title, whether it changes by points or by a ratio, and whether more is better."""

    name: str
    title: str
    kind: str
    more_is_better: bool
    unit: str = "s"
    """Unit of the figure of a ratio."""


ON_TIME, ON_TIME_TOKENS, REJECTED, TTFT_MEAN = "on_time", "on_time_tokens", "rejected", "ttft_mean_s"
ENGINE_HOURS = "engine_h"

OBJECTIVES = (
    AdviceObjective(ON_TIME, "On time, of requests", SHARE, True),
    AdviceObjective(ON_TIME_TOKENS, "On time, of prompt tokens", SHARE, True),
    AdviceObjective(REJECTED, "Rejected", SHARE, False),
    AdviceObjective(TTFT_MEAN, "TTFT, mean", RATIO, False),
    AdviceObjective("ttft_p50_s", "TTFT, p50", RATIO, False),
    AdviceObjective("ttft_p90_s", "TTFT, p90", RATIO, False),
    AdviceObjective("ttft_p99_s", "TTFT, p99", RATIO, False),
    AdviceObjective("tpot_p90_s", "TPOT, p90", RATIO, False),
    AdviceObjective("hits", "Cache hits, of prompt tokens", SHARE, True),
    AdviceObjective("engine_s", "Prefill time per request", RATIO, False),
    AdviceObjective(ENGINE_HOURS, "Engine hours per day", RATIO, False, "h"),
)
"""Figures of a run. Prefill time is in engine seconds, as estimated at dispatch."""
SHARES = (ON_TIME, ON_TIME_TOKENS)
DECIDING = (*SHARES, TTFT_MEAN, ENGINE_HOURS)
"""Objectives of which one must improve."""
GUARDED = (*SHARES, TTFT_MEAN, REJECTED)
"""Objectives that must not get worse by a practical size on an equal or larger fleet."""
GUARDED_OF_FEWER = (*SHARES, REJECTED)
"""Those on a smaller fleet: requests can wait longer there if they stay on time."""


class WindowFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run by objective; None where the run has no such figure."""

    figures: dict[str, float | None]
    groups: dict[str, tuple[int, float]] = {}
    """Requests and on-time share by tenant and by prompt length."""


class Practical(msgspec.Struct, frozen=True, kw_only=True):
    """Smallest changes that matter: of shares in 0..1, of times and engine hours as a ratio."""

    share: float = 0.02
    ratio: float = 0.1
    engine_hours: float = 0.05
    attainment: float = 0.9
    """Target of both on-time shares. More engines are proposed only where the live policy misses it."""


class PredictedChange(msgspec.Struct, frozen=True):
    """One objective. Changes are differences of shares, or relative changes of times (−0.2: a fifth less)."""

    objective: AdviceObjective
    live: float
    proposed: float
    change: float
    low: float
    high: float
    measured: float
    """The change in the windows for checking."""


class GroupChange(msgspec.Struct, frozen=True):
    """The on-time share of the requests of one tenant or prompt length."""

    group: str
    requests: int
    live: float
    proposed: float


def utility(live: Sequence[WindowFigures], tried: Sequence[WindowFigures], practical: Practical) -> float:
    """Return the sum of the candidate's gains, each in units of its practical size.

    If a guarded objective gets worse by a practical size, return that loss. With fewer engines, the on-time shares
    count as in their worst window, and slower answers do not count. Engines that no missed objective needs are a loss.
    Runs are in the same order of windows and seeds.
    """
    differences = {
        item: _differences(item, live, tried, 1) for item in OBJECTIVES if item.name in (*GUARDED, *DECIDING)
    }
    means = {item: fmean(values) for item, values in differences.items() if values}
    gains = {item.name: gain_of(_plain(mean, item), item, practical) for item, mean in means.items()}
    engine_gain = gains.get(ENGINE_HOURS, 0.0)
    if engine_gain > 0:
        for item, values in differences.items():
            if item.name in SHARES and values:
                gains[item.name] = gain_of(min(values), item, practical)
        gains[TTFT_MEAN] = max(gains.get(TTFT_MEAN, 0.0), 0.0)
    if engine_gain < 0 and not misses_objective(_share_means(live), practical):
        return engine_gain - 1
    worst = min(gains[name] for name in guarded(engine_gain) if name in gains)
    return worst if worst <= -1 else sum(gains.values())


def guarded(engine_gain: float) -> tuple[str, ...]:
    """Return the objectives that must not get worse, given the gain in engine hours: above 0 with fewer engines."""
    return GUARDED_OF_FEWER if engine_gain > 0 else GUARDED


def misses_objective(on_time_shares: Sequence[float], practical: Practical) -> bool:
    """Return whether one of the live policy's on-time shares is below the target."""
    return any(share < practical.attainment for share in on_time_shares)


def gain_of(change: float, objective: AdviceObjective, practical: Practical) -> float:
    """Return a predicted change in units of its practical size, above 0 if it is better."""
    size, practical_size = change, practical.share
    if objective.kind == RATIO:
        ratio = practical.engine_hours if objective.name == ENGINE_HOURS else practical.ratio
        size, practical_size = math.log1p(change), -math.log1p(-ratio)
    return size / practical_size if objective.more_is_better else -size / practical_size


def predicted_changes(
    predict: tuple[Sequence[WindowFigures], Sequence[WindowFigures]],
    check: tuple[Sequence[WindowFigures], Sequence[WindowFigures]],
    seeds: int,
) -> tuple[PredictedChange, ...]:
    """Return the change of each objective that all runs have.

    Each pair has the live policy's runs and the candidate's, window by window, `seeds` of each window in a row. The
    range is a prediction interval for the mean of as many windows as there are for checking.
    """
    made = []
    for objective in OBJECTIVES:
        differences, measured = (_differences(objective, *runs, seeds) for runs in (predict, check))
        if not differences or not measured:
            continue
        n, mean = len(differences), fmean(differences)
        half = t95(n - 1) * stdev(differences) * math.sqrt(1 / n + 1 / len(measured))
        change, low, high, measured_change = (
            _plain(value, objective) for value in (mean, mean - half, mean + half, fmean(measured))
        )
        live, proposed = (fmean(run.figures[objective.name] or 0.0 for run in runs) for runs in predict)
        made.append(PredictedChange(objective, live, proposed, change, low, high, measured_change))
    return tuple(made)


def t95(degrees: int) -> float:
    """Return Student's t at 95 %, for 90 % ranges; beyond the table, that of its last row."""
    return _T95[min(degrees, len(_T95)) - 1]


def worse_groups(
    live: Sequence[WindowFigures], tried: Sequence[WindowFigures], practical: Practical
) -> tuple[GroupChange, ...]:
    """Return the tenants and prompt lengths whose on-time share falls by a practical size, the worst first."""
    before, after = _group_sums(live), _group_sums(tried)
    changes = [
        GroupChange(name, requests, met / requests, after[name][1] / requests)
        for name, (requests, met) in before.items()
    ]
    worse = [item for item in changes if item.live - item.proposed >= practical.share]
    return tuple(sorted(worse, key=lambda item: (item.proposed - item.live, item.group)))


def _group_sums(runs: Sequence[WindowFigures]) -> dict[str, tuple[int, float]]:
    """Return the requests of each group, and how many of them were on time. Runs of both policies have the same."""
    sums: dict[str, tuple[int, float]] = {}
    for run in runs:
        for name, (requests, share) in run.groups.items():
            of, met = sums.get(name, (0, 0.0))
            sums[name] = (of + requests, met + requests * share)
    return sums


def _share_means(runs: Sequence[WindowFigures]) -> list[float]:
    return [fmean(run.figures.get(name) or 0.0 for run in runs) for name in SHARES]


def _differences(
    objective: AdviceObjective, live: Sequence[WindowFigures], tried: Sequence[WindowFigures], seeds: int
) -> list[float]:
    """Return the mean difference of each window, of logarithms if it is a ratio; empty if a run lacks the figure."""
    differences = []
    for one, other in zip(live, tried, strict=True):
        before, after = one.figures.get(objective.name), other.figures.get(objective.name)
        if before is None or after is None or (objective.kind == RATIO and min(before, after) <= 0):
            return []
        differences.append(after - before if objective.kind == SHARE else math.log(after / before))
    return [fmean(differences[at : at + seeds]) for at in range(0, len(differences), seeds)]


def _plain(value: float, objective: AdviceObjective) -> float:
    """Return a mean difference as a change: of logarithms, as a relative change."""
    return value if objective.kind == SHARE else math.expm1(value)
