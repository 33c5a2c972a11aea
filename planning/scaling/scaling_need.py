"""Required number of engines and its reasons, before cooldowns and budget (DualMap §3.4, A.3.3)."""

from __future__ import annotations

from math import ceil

from planning.facts.reason import Reason
from planning.scaling.scaling_evaluation import ScalingRound
from routing.values.counted import count

TOO_FEW_FOR_S = 3600.0
"""How long an insufficient number of engines is remembered."""


def wanted_engines(evaluation: ScalingRound, override: int | None) -> tuple[int, list[Reason]]:
    """Return the required number of engines, before cooldowns and budget, and the reasons."""
    engines, settings = evaluation.engines, evaluation.settings
    if override is not None:
        wanted = min(max(override, settings.min_engines), settings.max_engines)
        text = f"an operator set {count(override, 'engine')}"
        return wanted, [Reason("override", text if wanted == override else f"{text}; the bounds make it {wanted}")]
    if outside := _outside_bounds(evaluation):
        return outside
    if evaluation.load.demand is None:
        return engines, [Reason("no_facts", "no recent data about the pool")]
    up = _why_more(evaluation)
    if up:
        # The queue should be gone soon after the new engines are up.
        backlog = evaluation.load.queued_s / (evaluation.settings.warm_up_s + 2 * evaluation.facts.ttft_slo_s)
        # A load that has just risen shows in the last third of the window first.
        risen = max(evaluation.expected, evaluation.load.latest_demand or 0.0)
        wanted = max(evaluation.needed(risen), engines + 1, ceil(evaluation.load.demand + backlog) + evaluation.lost)
        if engines >= settings.max_engines:
            up.append(Reason("at_max", f"the pool has {count(engines, 'engine')}, the maximum"))
        return min(wanted, settings.max_engines), up
    return _fewer(evaluation)


def _outside_bounds(evaluation: ScalingRound) -> tuple[int, list[Reason]] | None:
    """Return the number within the bounds, or the first engines of a pool whose requests wait for them; else None."""
    engines, most = evaluation.engines, evaluation.settings.max_engines
    there = count(engines, "engine is", "engines are")
    if engines < evaluation.floor:
        return evaluation.floor, [Reason("below_min", f"{there} fewer than {evaluation.floor}")]
    if engines > most:
        return most, [Reason("above_max", f"{there} more than {most}")]
    unserved = 0 if engines else evaluation.facts.unserved
    if not unserved:
        return None
    wanted = min(max(1, evaluation.needed(evaluation.expected)), most)
    return wanted, [Reason("unserved", f"{count(unserved, 'request waits', 'requests wait')} and no engine runs")]


def _why_more(evaluation: ScalingRound) -> list[Reason]:
    """Return why engines should be added, empty if they should not."""
    settings, load, engines = evaluation.settings, evaluation.load, evaluation.engines - evaluation.lost
    demand, reasons = load.demand or 0.0, []
    slo_s = evaluation.facts.ttft_slo_s
    # Late requests on idle engines are not for lack of engines.
    busy = demand > settings.utilisation * engines or load.queued_s > 0.5 * slo_s * max(engines, 1)
    if load.attainment is not None and load.attainment < settings.attainment and busy:
        on_time = f"{100 * load.attainment:.0f} % of {count(load.requests, 'request was', 'requests were')} on time"
        text = f"{on_time}; demand was {demand:.1f} engines"
        reasons.append(Reason("violation", text))
    ahead_s = load.queued_s + max(load.queue_growth, 0.0) * settings.warm_up_s
    if load.queue_growth > 0 and demand > engines and ahead_s > slo_s * max(engines, 1):
        text = f"{load.queued_s:.0f} s of work are queued, growing by {load.queue_growth:.1f} s per second"
        reasons.append(Reason("queue_growth", text))
    limit = evaluation.most
    if evaluation.forecast is not None and evaluation.forecast.ahead > limit:
        text = f"a demand of {evaluation.forecast.ahead:.1f} engines is forecast ({evaluation.forecast.basis})"
        reasons.append(Reason("forecast", f"{text}; adds above {limit:.1f} of {engines}"))
    elif evaluation.forecast is None and demand > limit:
        there = f"{count(engines, 'engine')} ({_percent(demand, engines)})"
        text = f"load is {demand:.1f} of {there}; adds above {limit:.1f}"
        reasons.append(Reason("utilisation", text))
    return reasons


def _fewer(evaluation: ScalingRound) -> tuple[int, list[Reason]]:
    """Return how many engines would be enough, at most one step fewer, or the current number."""
    settings, load, engines = evaluation.settings, evaluation.load, evaluation.engines
    attained = load.attainment is None or load.attainment >= settings.attainment
    if not attained:
        share = 100 * (load.attainment or 0.0)
        text = f"{share:.0f} % of requests were on time, but the engines are not busy: adding more would not help"
        return engines, [Reason("late_not_busy", text)]
    if load.queued_s > 0.5 * evaluation.facts.ttft_slo_s * max(engines, 1):
        return engines, [Reason("queue", f"{load.queued_s:.0f} s of work are queued")]
    enough = max(evaluation.floor, evaluation.needed(evaluation.lasting / (1.0 - settings.hysteresis)))
    memory = evaluation.memory
    remembered = memory.too_few_s is not None and evaluation.now_s - memory.too_few_s < TOO_FEW_FOR_S
    if remembered and evaluation.lasting >= memory.too_few_demand * (1.0 - settings.hysteresis):
        enough = max(enough, memory.too_few + 1)
    if enough >= engines:
        return engines, [Reason("right_size", _right_size(evaluation, engines))]
    wanted = max(enough, engines - settings.max_down)
    working = engines - evaluation.lost
    held = f"{count(working, 'engine')} ({_percent(evaluation.lasting, working)})"
    text = f"load is {evaluation.lasting:.1f} of {held}; {enough} {'is' if enough == 1 else 'are'} enough"
    return wanted, [Reason("idle", text)]


def _right_size(evaluation: ScalingRound, engines: int) -> str:
    """Return the calculation in one line: the load, and the loads at which engines are added or removed."""
    working = engines - evaluation.lost
    fewer = f"removes below {evaluation.least:.1f}"
    if engines <= evaluation.floor:
        fewer = f"{evaluation.floor} is the minimum"
    elif evaluation.lasting <= evaluation.least:
        fewer = f"{evaluation.memory.too_few} {'was' if evaluation.memory.too_few == 1 else 'were'} too few recently"
    load = f"load is {evaluation.lasting:.1f} of {count(working, 'engine')} ({_percent(evaluation.lasting, working)})"
    return f"{load}; adds above {evaluation.most:.1f}, {fewer}"


def _percent(part: float, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "none is working"
