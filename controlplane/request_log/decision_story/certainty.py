"""Certainty of a choice by least wait + β × compute: the thresholds at which another candidate would have won.

The cost of a candidate is linear in β: fixed + β × compute, where fixed is its wait plus the cost of responses that
share the engine. With c the chosen candidate and r the next best:

    β*     = (fixed_c − fixed_r) / (compute_r − compute_c)    the two cost the same
    wait*  = cost_r − β × compute_c − sharing_c               c's wait from which r wins
    hit*   : compute(hit*) = (cost_r − fixed_c) / β           c's hit below which r wins, by the cost model of then
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.format import duration, plain, whole
from gateway.contracts.stored_decision import StoredDecision
from routing.values.counted import count
from routing.values.decision import Candidate

_SAME = 1e-6
_STEPS = 40


@dataclass(frozen=True, slots=True)
class Firmness:
    """The thresholds that would have changed the choice."""

    beta: float
    rival: str
    """Engine id of the next best candidate."""
    beta_at: float | None
    """β at which both candidates cost the same; None: no positive value."""
    wait_at_s: float
    hit_at: int | None
    """Cached tokens at which the rival wins. None: the chosen engine would have won even without cached tokens."""


def beta_of(stored: StoredDecision) -> float | None:
    """Return the β used to weight the candidates; None if the placement uses none."""
    if stored.decision.placement != "least_cost":
        return None
    weights = [
        (candidate.cost - fixed_s(candidate)) / candidate.compute_s
        for candidate in stored.decision.candidates
        if candidate.compute_s > 0
    ]
    if not weights or max(weights) - min(weights) > _SAME * max(weights) + _SAME:
        return None
    return weights[0]


def fixed_s(candidate: Candidate) -> float:
    """Return the part of a candidate's cost that does not depend on β."""
    return candidate.wait_s + candidate.sharing_s


def runner_up(stored: StoredDecision) -> Candidate | None:
    """Return the candidate with the lowest cost other than the chosen one."""
    others = stored.decision.candidates[1:]
    return min(others, key=lambda other: (other.cost, other.engine_id)) if others else None


def firmness(stored: StoredDecision) -> Firmness | None:
    """Return the firmness of the choice; None without another candidate, or if the costs have another form."""
    beta, rival = beta_of(stored), runner_up(stored)
    if beta is None or rival is None:
        return None
    chosen = stored.decision.candidates[0]
    slope = rival.compute_s - chosen.compute_s
    crossing = (fixed_s(chosen) - fixed_s(rival)) / slope if abs(slope) > _SAME else -1.0
    return Firmness(
        beta,
        rival.engine_id,
        crossing if crossing > 0 else None,
        max(0.0, rival.cost - beta * chosen.compute_s - chosen.sharing_s),
        _hit_at(stored, chosen, (rival.cost - fixed_s(chosen)) / beta),
    )


def conditions(stored: StoredDecision, firm: Firmness) -> list[tuple[str, str, str]]:
    """Return the thresholds that would have changed the choice, as texts; empty if cost alone did not decide."""
    chosen, rows, rival = stored.decision.candidates[0], [], runner_up(stored)
    if rival is not None and rival.cost <= chosen.cost + _SAME:
        return []
    if firm.beta_at is not None:
        under = "under" if firm.beta_at < firm.beta else "over"
        rows.append((f"β were {under}", plain(firm.beta_at), f"it was {plain(firm.beta)}"))
    name = name_of(stored, chosen.engine_id)
    rows.append((f"{name}'s wait exceeded", duration(firm.wait_at_s), f"estimated {duration(chosen.wait_s)}"))
    if firm.hit_at is not None and chosen.hit_tokens:
        rows.append(("it held less than", count(round(firm.hit_at), "token"), f"believed {whole(chosen.hit_tokens)}"))
    return rows


def name_of(stored: StoredDecision, engine_id: str) -> str:
    """Return the engine's name at the time of the decision."""
    return next((item.name for item in stored.known if item.engine_id == engine_id and item.name), engine_id)


def _hit_at(stored: StoredDecision, chosen: Candidate, limit_s: float) -> int | None:
    """Return the minimum hit with which the chosen engine's prefill takes at most `limit_s`.

    Also None if part of the hit must be loaded, because loading takes additional time.
    """
    cost, length, fetch = stored.cost, stored.decision.prompt_tokens, stored.decision.fetch
    if (fetch is not None and fetch.node) or chosen.loading is not None:
        return None
    if cost is None or not chosen.hit_tokens or cost.seconds(length, 0) / stored.speed <= limit_s:
        return None
    low, high = 0, chosen.hit_tokens
    for _ in range(_STEPS):
        middle = (low + high) // 2
        if middle == low:
            break
        if cost.seconds(length, middle) / stored.speed > limit_s:
            low = middle
        else:
            high = middle
    return high
