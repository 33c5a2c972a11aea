"""From a plan to the orders that carry it out, whoever wants it carried out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from controlplane.automation.actuators.registry import actuator_of
from controlplane.automation.engine_orders import order_flip, order_start, order_stop
from controlplane.automation.models.engine_order import EngineOrder
from controlplane.automation.pool_facts import engines_by_id
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor


def order_scaling(
    pool: Pool, add: Iterable[str], drain: Sequence[str], *, actor: Actor, why: str, at: datetime
) -> list[EngineOrder]:
    """Order an engine for each role in `add` and the end of each engine in `drain`; return what was ordered.

    Engines that are gone, or have an open order, are passed over. Belongs into a transaction.
    """
    placed = [order_start(pool, role, actor=actor, why=why, at=at) for role in add]
    engines = engines_by_id(pool, drain)
    placed += [order_stop(engines[each], actor=actor, why=why, at=at) for each in drain if each in engines]
    return [order for order in placed if order is not None]


def order_flips(
    pool: Pool, flips: Sequence[tuple[str, str]], *, actor: Actor, why: str, at: datetime
) -> list[EngineOrder]:
    """Order each (engine id, role after); return what was ordered. Belongs into a transaction.

    Where the actuator cannot turn an engine, one of the other role starts and this one stops.
    """
    turns = actuator_of(pool).can_flip
    engines = engines_by_id(pool, [engine_id for engine_id, _ in flips])
    placed: list[EngineOrder | None] = []
    for engine_id, role in flips:
        engine = engines.get(engine_id)
        if engine is None:
            continue
        if turns:
            placed.append(order_flip(engine, role, actor=actor, why=why, at=at))
        elif (stop := order_stop(engine, actor=actor, why=why, at=at)) is not None:
            placed += [stop, order_start(pool, role, actor=actor, why=why, at=at)]
    return [order for order in placed if order is not None]
