"""Whether a predicted change is worth a proposal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.adviser.fleet_shape import FleetShape
from planning.adviser.prediction import (
    DECIDING,
    ENGINE_HOURS,
    SHARE,
    SHARES,
    AdviceObjective,
    GroupChange,
    Practical,
    PredictedChange,
    gain_of,
    guarded,
    misses_objective,
)
from planning.adviser.search_space import Point
from planning.adviser.trace_windows import WindowPlan
from routing.policy.policy_document import RoutingPolicy


class PolicyCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that was predicted, and what it changes."""

    policy: RoutingPolicy
    fleet: FleetShape
    """The engines that it was predicted with. They are not a part of the policy document."""
    settings: Point
    """The settings that differ from the live ones, by path; engines as `fleet.engines` and `fleet.prefill`."""
    changes: tuple[PredictedChange, ...]
    costs: tuple[str, ...]
    """What gets worse by a practical size or takes more engine hours, as sentences."""
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
    fleet: FleetShape
    """The live fleet."""
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
    get worse by a practical size; with fewer engines, not even at the worse end of an on-time share's range. More
    engines need a missed objective.
    """
    gains = {item.objective.name: (item, gain_of(item.change, item.objective, practical)) for item in changes}
    engine_gain = gains[ENGINE_HOURS][1] if ENGINE_HOURS in gains else 0.0
    made = [
        f"{gains[name][0].objective.title}: worse by a practical size"
        for name in guarded(engine_gain)
        if name in gains and gains[name][1] <= -1
    ]
    improved = [item for name, (item, gain) in gains.items() if name in DECIDING and gain >= 1]
    if not improved:
        made.append("no objective improves by a practical size")
    elif all(_worse_end(item, practical) <= 0 for item in improved):
        made.append("the ranges of all objectives that improve include no change")
    shares = [gains[name][0] for name in SHARES if name in gains]
    if engine_gain > 0 and any(_worse_end(item, practical) <= -1 for item in shares):
        made.append("fewer engines, and the range of an on-time share includes a loss of practical size")
    if engine_gain < 0 and not misses_objective([item.live for item in shares], practical):
        made.append("more engines, although the live policy meets its on-time objective")
    return tuple(made)


def costs_of(changes: Sequence[PredictedChange], practical: Practical) -> tuple[str, ...]:
    """Return what gets worse: figures by a practical size, and any additional engine hours."""
    return tuple(
        f"{item.objective.title}: {change_words(item.change, item.objective)}"
        for item in changes
        if gain_of(item.change, item.objective, practical) <= (0 if item.objective.name == ENGINE_HOURS else -1)
        and item.change != 0
    )


def _worse_end(item: PredictedChange, practical: Practical) -> float:
    """Return the gain at the worse end of the range."""
    return gain_of(item.low if item.objective.more_is_better else item.high, item.objective, practical)


def change_words(change: float, objective: AdviceObjective) -> str:
    """Return a change as text: in points of a share, in percent of a time."""
    return f"{change * 100:+.1f} pt" if objective.kind == SHARE else f"{change * 100:+.1f} %"
