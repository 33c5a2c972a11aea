"""Whether a predicted change is worth a proposal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.adviser.prediction import (
    DECIDING,
    GUARDED,
    SHARE,
    GroupChange,
    Objective,
    Practical,
    PredictedChange,
    gain_of,
)
from planning.adviser.search_space import Point
from planning.adviser.trace_windows import WindowPlan
from routing.policy.policy_document import RoutingPolicy


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that was predicted, and what it changes."""

    policy: RoutingPolicy
    settings: Point
    """The settings that differ from the live policy, by path."""
    changes: tuple[PredictedChange, ...]
    worse: tuple[GroupChange, ...]
    objections: tuple[str, ...]
    """Why it is not proposed, as sentences; empty if it is."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search: a proposal, or the reason for none, with its evidence."""

    proposal: Candidate | None
    abstains: str
    """Why there is no proposal, as one sentence; empty if there is one."""
    rejected: tuple[Candidate, ...]
    """Candidates that the search preferred and the prediction did not confirm."""
    live: RoutingPolicy
    windows: WindowPlan
    seeds: tuple[int, ...]
    practical: Practical
    candidates: int
    runs: int
    cpu_s: float
    budget_s: float
    cut_short: bool
    """Whether the CPU budget ended the search before its last run."""


def objections(changes: Sequence[PredictedChange], practical: Practical) -> tuple[str, ...]:
    """Return why these changes do not support a proposal.

    One deciding objective must improve by a practical size with its whole range on the better side. No guarded one may
    get worse by a practical size.
    """
    made = [
        f"{item.objective.title}: worse by a practical size"
        for item in changes
        if item.objective.name in GUARDED and gain_of(item.change, item.objective, practical) <= -1
    ]
    deciding = [item for item in changes if item.objective.name in DECIDING]
    if not any(_improves(item, practical) for item in deciding):
        best = max((gain_of(item.change, item.objective, practical) for item in deciding), default=0.0)
        made.append(
            "no objective improves by a practical size"
            if best < 1
            else "the ranges of all objectives that improve include no change"
        )
    return tuple(made)


def _improves(item: PredictedChange, practical: Practical) -> bool:
    worst = item.low if item.objective.more_is_better else item.high
    enough = gain_of(item.change, item.objective, practical) >= 1
    return enough and gain_of(worst, item.objective, practical) > 0


def change_words(change: float, objective: Objective) -> str:
    """Return a change as text: in points of a share, in percent of a time."""
    return f"{change * 100:+.1f} pt" if objective.kind == SHARE else f"{change * 100:+.1f} %"
