"""What a candidate would change, with a range: paired differences between runs on equal requests with equal seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

import msgspec

SHARE, RATIO = "share", "ratio"
COVERAGE = 0.9
# Student's t at 95 %, by degrees of freedom from 1; beyond, the normal quantile is near enough.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
_T95_MORE = 1.75


class Objective(msgspec.Struct, frozen=True):
    """One figure of a run: its title, whether it changes by points or by a ratio, and whether more is better."""

    name: str
    title: str
    kind: str
    more_is_better: bool


ON_TIME, ON_TIME_TOKENS, REJECTED, TTFT_MEAN = "on_time", "on_time_tokens", "rejected", "ttft_mean_s"

OBJECTIVES = (
    Objective(ON_TIME, "On time, of requests", SHARE, True),
    Objective(ON_TIME_TOKENS, "On time, of prompt tokens", SHARE, True),
    Objective(REJECTED, "Rejected", SHARE, False),
    Objective(TTFT_MEAN, "TTFT, mean", RATIO, False),
    Objective("ttft_p50_s", "TTFT, p50", RATIO, False),
    Objective("ttft_p90_s", "TTFT, p90", RATIO, False),
    Objective("ttft_p99_s", "TTFT, p99", RATIO, False),
    Objective("tpot_p90_s", "TPOT, p90", RATIO, False),
    Objective("hits", "Cache hits, of prompt tokens", SHARE, True),
    Objective("engine_s", "Prefill time per request", RATIO, False),
)
"""Figures of a run. Prefill time is in engine seconds, as estimated at dispatch."""
DECIDING = (ON_TIME, ON_TIME_TOKENS, TTFT_MEAN)
"""Objectives of which one must improve."""
GUARDED = (*DECIDING, REJECTED)
"""Objectives that must not get worse by a practical size."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run by objective; None where the run has no such figure."""

    figures: dict[str, float | None]
    groups: dict[str, tuple[int, float]] = {}
    """Requests and on-time share by tenant and by prompt length."""


class Practical(msgspec.Struct, frozen=True, kw_only=True):
    """Smallest changes that matter: of shares in 0..1, of times as a ratio."""

    share: float = 0.02
    ratio: float = 0.1


class PredictedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One objective. Changes are differences of shares, or relative changes of times (−0.2: a fifth less)."""

    objective: Objective
    live: float
    proposed: float
    change: float
    low: float
    high: float
    measured: float | None
    """The change in the windows for checking; None without one."""

    @property
    def held(self) -> bool | None:
        """Whether the measured change lies in the range; None without one."""
        return None if self.measured is None else self.low <= self.measured <= self.high


class GroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """The on-time share of the requests of one tenant or prompt length."""

    group: str
    requests: int
    live: float
    proposed: float


def utility(live: Sequence[RunFigures], tried: Sequence[RunFigures], practical: Practical) -> float:
    """Return the sum of the candidate's gains in the guarded objectives, each in units of its practical size.

    If one of them gets worse by a practical size, return that loss. Runs are in the same order of windows and seeds.
    """
    guarded = [objective for objective in OBJECTIVES if objective.name in GUARDED]
    gains = [gain for item in guarded if (gain := _gain(item, live, tried, practical)) is not None]
    worst = min(gains)
    return worst if worst <= -1 else sum(gains)


def gain_of(change: float, objective: Objective, practical: Practical) -> float:
    """Return a predicted change in units of its practical size, above 0 if it is better."""
    if objective.kind == SHARE:
        size = change / practical.share
    else:
        size = math.log1p(max(change, -1 + 1e-9)) / -math.log1p(-practical.ratio)
    return size if objective.more_is_better else -size


def predicted_changes(
    predict: tuple[Sequence[RunFigures], Sequence[RunFigures]],
    check: tuple[Sequence[RunFigures], Sequence[RunFigures]],
    seeds: int,
) -> tuple[PredictedChange, ...]:
    """Return the change of each objective that all runs have.

    Each pair has the live policy's runs and the candidate's, window by window, `seeds` of each window in a row. The
    range is a prediction interval for the mean of as many windows as there are for checking.
    """
    made = []
    for objective in OBJECTIVES:
        differences = _by_window(objective, *predict, seeds)
        if not differences or len(differences) < 2:
            continue
        measured = _by_window(objective, *check, seeds)
        further = len(check[0]) // seeds or 1
        n, mean = len(differences), fmean(differences)
        error = stdev(differences) * math.sqrt(1 / n + 1 / further)
        half = error * (_T95[n - 2] if n - 2 < len(_T95) else _T95_MORE)
        made.append(
            PredictedChange(
                objective=objective,
                live=_mean(objective.name, predict[0]),
                proposed=_mean(objective.name, predict[1]),
                change=_plain(mean, objective),
                low=_plain(mean - half, objective),
                high=_plain(mean + half, objective),
                measured=_plain(fmean(measured), objective) if measured else None,
            )
        )
    return tuple(made)


def worse_groups(
    live: Sequence[RunFigures], tried: Sequence[RunFigures], practical: Practical
) -> tuple[GroupChange, ...]:
    """Return the tenants and prompt lengths whose on-time share falls by a practical size, the worst first."""
    before, after = _group_shares(live), _group_shares(tried)
    changes = [
        GroupChange(group=name, requests=requests, live=share, proposed=after[name][1])
        for name, (requests, share) in before.items()
        if name in after and share - after[name][1] >= practical.share
    ]
    return tuple(sorted(changes, key=lambda item: (item.proposed - item.live, item.group)))


def _group_shares(runs: Sequence[RunFigures]) -> Mapping[str, tuple[int, float]]:
    sums: dict[str, tuple[int, float]] = {}
    for run in runs:
        for name, (requests, share) in run.groups.items():
            of, met = sums.get(name, (0, 0.0))
            sums[name] = (of + requests, met + requests * share)
    return {name: (requests, met / requests) for name, (requests, met) in sums.items()}


def _gain(
    objective: Objective, live: Sequence[RunFigures], tried: Sequence[RunFigures], practical: Practical
) -> float | None:
    differences = _by_window(objective, live, tried, 1)
    return gain_of(_plain(fmean(differences), objective), objective, practical) if differences else None


def _by_window(
    objective: Objective, live: Sequence[RunFigures], tried: Sequence[RunFigures], seeds: int
) -> list[float] | None:
    """Return the mean difference of each window, of logarithms if it is a ratio; None if a run lacks the figure."""
    differences = []
    for one, other in zip(live, tried, strict=True):
        before, after = one.figures.get(objective.name), other.figures.get(objective.name)
        if before is None or after is None:
            return None
        if objective.kind == SHARE:
            differences.append(after - before)
        elif before > 0 and after > 0:
            differences.append(math.log(after / before))
        else:
            return None
    return [fmean(differences[at : at + seeds]) for at in range(0, len(differences), seeds)]


def _plain(value: float, objective: Objective) -> float:
    """Return a mean difference as a change: of logarithms, as a relative change."""
    return value if objective.kind == SHARE else math.expm1(value)


def _mean(name: str, runs: Sequence[RunFigures]) -> float:
    return fmean(run.figures[name] or 0.0 for run in runs)
