"""Manual actuator: the console shows orders, and an operator starts and stops engines and marks orders done."""

from __future__ import annotations

from typing_extensions import override

from controlplane.automation.actuators.actuator import Actuator, Answer, Standing
from controlplane.automation.models.engine_order import EngineOrder

CONFIRMED = "confirmed_by"


class ManualActuator(Actuator):
    """Asks, and waits for the answer that controlplane.automation.engine_orders.confirm notes."""

    can_flip = True

    @override
    def start(self, order: EngineOrder) -> Answer:
        """Ask for one engine more; it counts once it is registered."""
        return Answer(Standing.UNDER_WAY, f"Start one {order.role} engine and register it in {order.pool.slug}.")

    @override
    def undo(self, order: EngineOrder) -> Answer:
        """Do nothing: the console says that the order has ended."""
        return Answer(Standing.IN_EFFECT)

    @override
    def stop(self, order: EngineOrder) -> Answer:
        """Ask for the engine's end."""
        return _asked(order, f"{order.engine_name} is drained. Stop it, then confirm.")

    @override
    def flip(self, order: EngineOrder) -> Answer:
        """Ask for the engine's restart in another role."""
        return _asked(order, f"{order.engine_name} is drained. Restart it as a {order.role} engine, then confirm.")


def _asked(order: EngineOrder, says: str) -> Answer:
    if order.told.get(CONFIRMED):
        return Answer(Standing.IN_EFFECT, f"done by {order.told[CONFIRMED]}")
    return Answer(Standing.UNDER_WAY, says)
