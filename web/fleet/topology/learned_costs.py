"""An engine's learned costs in words, for its drawer."""

from __future__ import annotations

from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.platform.format import count

_PROMPT_TOKENS = 4096


def learned_words(engine: Engine, *, answered: bool = True) -> str:
    """Return the engine's learned prefill and decode speeds, and how certain they are.

    Costs learned for its engine kind do not apply to an engine that never responded.
    """
    cost = LearnedCost.objects.filter(pool_id=engine.pool_id, kind=engine.kind).first()
    if cost is None or not answered:
        return "nothing yet"
    fitted = fitted_of(cost)
    speed = fitted.speeds.get(engine.engine_id, 1.0) * engine.speed
    prefill_ms = 1000 * fitted.prefill.seconds(_PROMPT_TOKENS, 0) / speed
    words = f"{_PROMPT_TOKENS:,} new tokens in {prefill_ms:,.0f} ms, from {count(fitted.samples, 'prefill')}"
    words += f"; off by {fitted.error:.0%} on average, the policy's cost by {fitted.policy_error:.0%}"
    if fitted.decode is not None:
        words += f"; a decode step of 16 requests takes {1000 * fitted.decode.seconds(16, 16 * _PROMPT_TOKENS):,.0f} ms"
    return f"{words}."
