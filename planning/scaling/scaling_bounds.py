"""Limits on a change of the pool's size: cooldowns, steps, budget, and draining engines."""

from __future__ import annotations

from planning.facts.fleet_facts import DRAINING
from planning.facts.reason import Reason
from planning.scaling.scaling_evaluation import ScalingRound
from planning.scaling.scaling_plan import engine_h_of_day
from planning.scaling.start_pause import why_no_start
from routing.values.counted import count


def bounded_change(evaluation: ScalingRound, wanted: int, by_hand: bool) -> tuple[int, list[Reason]]:
    """Return the change of the pool's size in this round, and the limits that apply."""
    change = wanted - evaluation.engines
    if change > 0:
        return _bounded_up(evaluation, change, by_hand)
    if change < 0:
        return _bounded_down(evaluation, -change, by_hand)
    return 0, []


def _bounded_up(evaluation: ScalingRound, change: int, by_hand: bool) -> tuple[int, list[Reason]]:
    settings, memory = evaluation.settings, evaluation.memory
    if evaluation.facts.failed_starts:
        failing = why_no_start(evaluation.facts)
        if failing is not None:
            return 0, [failing]
        # After failed starts, a single one shows whether starts work again.
        change = 1
    pause_s = settings.warm_up_s + settings.up_cool_down_s
    left_s = pause_s - (evaluation.now_s - memory.added_s) if memory.added_s is not None else 0.0
    # Below the minimum, and while requests wait for a first engine, no cool-down applies.
    if left_s > 0 and not by_hand and evaluation.engines >= max(1, settings.min_engines):
        return 0, [Reason("cool_down", f"engines were added recently; the next can be added in {left_s:.0f} s")]
    if by_hand:
        return change, []
    bounded = min(change, settings.max_up)
    affordable = _affordable(evaluation)
    # The minimum is kept whatever it costs.
    if affordable is not None and affordable < bounded and evaluation.engines + affordable >= settings.min_engines:
        spent = engine_h_of_day(memory, evaluation.now_s)
        text = f"{spent:.1f} engine hours used in 24 h: the budget allows {affordable} of {bounded} more"
        return affordable, [Reason("budget", text)]
    if bounded < change:
        return bounded, [Reason("step", f"{change} needed, at most {bounded} added at once")]
    return bounded, []


def _affordable(evaluation: ScalingRound) -> int | None:
    """Return how many engines can run another hour within the budget, None without a budget."""
    settings = evaluation.settings
    limits = [settings.budget_engine_h] if settings.budget_engine_h else []
    if settings.budget_cost and settings.engine_h_cost:
        limits.append(settings.budget_cost / settings.engine_h_cost)
    if not limits:
        return None
    # The present engines need budget for their next hour, too.
    left_h = min(limits) - engine_h_of_day(evaluation.memory, evaluation.now_s) - evaluation.engines
    return max(0, int(left_h))


def _bounded_down(evaluation: ScalingRound, change: int, by_hand: bool) -> tuple[int, list[Reason]]:
    settings, memory = evaluation.settings, evaluation.memory
    draining = sum(engine.lifecycle == DRAINING for engine in evaluation.facts.engines)
    if draining:
        return 0, [Reason("draining", count(draining, "engine is still draining", "engines are still draining"))]
    if by_hand:
        return -change, []
    if evaluation.engines > settings.max_engines:
        return -min(change, settings.max_down), []
    moments = (memory.added_s, memory.drained_s, memory.calm_since_s)
    last_s = max((moment for moment in moments if moment is not None), default=evaluation.now_s)
    left_s = settings.down_cool_down_s - (evaluation.now_s - last_s)
    if left_s > 0:
        return 0, [Reason("cool_down", f"the load must stay low for another {left_s:.0f} s")]
    return -min(change, settings.max_down), []
