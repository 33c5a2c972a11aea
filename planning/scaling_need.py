"""How many engines a pool should have, before cool-downs and budget, and why (DualMap §3.4, A.3.3)."""

from __future__ import annotations

from math import ceil

from planning.reason import Reason
from planning.scaling_round import ScalingRound

TOO_FEW_FOR_S = 3600.0
"""How long it is remembered that a number of engines was not enough."""


def wanted_engines(look: ScalingRound, override: int | None) -> tuple[int, list[Reason]]:
    """Return how many engines there should be, before cool-downs and budget, and why."""
    settings, engines = look.settings, look.engines
    if override is not None:
        wanted = min(max(override, settings.min_engines), settings.max_engines)
        text = f"an operator asks for {override} engines"
        return wanted, [Reason("override", text if wanted == override else f"{text}; the bounds make it {wanted}")]
    if engines < settings.min_engines:
        return settings.min_engines, [Reason("below_min", f"{engines} engines are fewer than {settings.min_engines}")]
    if engines > settings.max_engines:
        return settings.max_engines, [Reason("above_max", f"{engines} engines are more than {settings.max_engines}")]
    if look.load.demand is None:
        return engines, [Reason("no_facts", "nothing is known of the pool's last seconds")]
    up = _why_more(look)
    if up:
        backlog = look.load.queued_s / (look.settings.warm_up_s + 2 * look.facts.ttft_slo_s)
        risen = max(look.expected, look.load.latest_demand or 0.0)
        wanted = max(look.needed(risen), engines + 1, ceil(look.load.demand + backlog) + look.lost)
        if engines >= settings.max_engines:
            up.append(Reason("at_max", f"there are {engines} engines already, the most the pool may have"))
        return min(wanted, settings.max_engines), up
    return _fewer(look)


def _why_more(look: ScalingRound) -> list[Reason]:
    """Return why engines should be added; empty where they should not."""
    settings, load, engines = look.settings, look.load, look.engines - look.lost
    demand, reasons = load.demand or 0.0, []
    slo_s = look.facts.ttft_slo_s
    busy = demand > settings.utilisation * engines or load.queued_s > 0.5 * slo_s * max(engines, 1)
    if load.attainment is not None and load.attainment < settings.attainment and busy:
        text = (
            f"{100 * load.attainment:.0f} % of {load.requests} requests were on time, {demand:.1f} engines' work came"
        )
        reasons.append(Reason("violation", text))
    ahead_s = load.queued_s + max(load.queue_growth, 0.0) * settings.warm_up_s
    if load.queue_growth > 0 and demand > engines and ahead_s > slo_s * max(engines, 1):
        text = f"{load.queued_s:.0f} s of work wait and grow by {load.queue_growth:.1f} s a second"
        reasons.append(Reason("queue_growth", text))
    limit = engines * settings.utilisation * (1 + settings.hysteresis)
    if look.forecast is not None and look.forecast.ahead > limit:
        text = f"{look.forecast.ahead:.1f} engines' work is expected ({look.forecast.basis})"
        reasons.append(Reason("forecast", f"{text}, {limit:.1f} is the most for {engines}"))
    elif look.forecast is None and demand > limit:
        reasons.append(
            Reason("utilisation", f"{demand:.1f} engines' work comes, {limit:.1f} is the most for {engines}")
        )
    return reasons


def _fewer(look: ScalingRound) -> tuple[int, list[Reason]]:
    """Return how many engines would be enough, at most a step below; the same number where it is best to stay."""
    settings, load, engines = look.settings, look.load, look.engines
    attained = load.attainment is None or load.attainment >= settings.attainment
    if not attained:
        share = 100 * (load.attainment or 0.0)
        text = f"{share:.0f} % of requests were on time, but the engines are not busy: more of them would not help"
        return engines, [Reason("late_not_busy", text)]
    if load.queued_s > 0.5 * look.facts.ttft_slo_s * max(engines, 1):
        return engines, [Reason("queue", f"{load.queued_s:.0f} s of work wait")]
    enough = max(settings.min_engines, look.needed(look.lasting / (1.0 - settings.hysteresis)))
    memory = look.memory
    remembered = memory.too_few_s is not None and look.now_s - memory.too_few_s < TOO_FEW_FOR_S
    if remembered and look.lasting >= memory.too_few_demand * (1.0 - settings.hysteresis):
        enough = max(enough, memory.too_few + 1)
    if enough >= engines:
        text = f"{look.lasting:.1f} engines' work needs {enough} engines"
        return engines, [Reason("right_size", f"{text}, there are {engines}")]
    wanted = max(enough, engines - settings.max_down)
    return wanted, [Reason("idle", f"{look.lasting:.1f} engines' work needs {enough} of {engines} engines")]
