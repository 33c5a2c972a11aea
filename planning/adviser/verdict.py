"""Whether a predicted change is worth a proposal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.adviser.prediction import (
    DECIDING,
    GUARDED,
    SHARE,
    AdviceObjective,
    GroupChange,
    Practical,
    PredictedChange,
    gain_of,
)
from planning.adviser.search_space import Point
from planning.adviser.trace_windows import WindowPlan
from routing.policy.policy_document import RoutingPolicy


class PolicyCandidate(msgspec.Struct, frozen=True, kw_only=True):
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

    proposal: PolicyCandidate | None
    abstains: str
    """Why there is no proposal, as one sentence; empty if there is one."""
    rejected: tuple[PolicyCandidate, ...]
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
    gains = {item.objective.name: (item, gain_of(item.change, item.objective, practical)) for item in changes}
    made = [
        f"{item.objective.title}: worse by a practical size"
        for name, (item, gain) in gains.items()
        if name in GUARDED and gain <= -1
    ]
    improved = [item for name, (item, gain) in gains.items() if name in DECIDING and gain >= 1]
    ends = [(item.low if item.objective.more_is_better else item.high, item.objective) for item in improved]
    if not improved:
        made.append("no objective improves by a practical size")
    elif all(gain_of(end, objective, practical) <= 0 for end, objective in ends):
        made.append("the ranges of all objectives that improve include no change")
    return tuple(made)


def change_words(change: float, objective: AdviceObjective) -> str:
    """Return a change as text: in points of a share, in percent of a time."""
    return f"{change * 100:+.1f} pt" if objective.kind == SHARE else f"{change * 100:+.1f} %"
