"""By which cost model prefills on one engine are estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from routing.cost.cost_model import PrefillCost

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


def engine_cost(pool: LivePool, engine_id: str) -> tuple[PrefillCost, float]:
    """Return model and speed of the engine: learned where the policy wants that and it is better, else the policy's."""
    engine, policy = pool.engines.get(engine_id), pool.entry.policy
    if engine is None:
        return PrefillCost.of(policy.prefill_cost), 1.0
    learned = pool.entry.costs.get(engine.entry.kind) if policy.cost == "fitted" else None
    if learned is None or not learned.better:
        return PrefillCost.of(policy.prefill_cost), engine.entry.speed
    return learned.prefill, engine.entry.speed * learned.speeds.get(engine_id, 1.0)
