"""Maps each pool to its actuator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from typing_extensions import override

from controlplane.automation.actuators.actuator import ActionProgress, Actuator, ActuatorAnswer
from controlplane.automation.actuators.process import ProcessActuator
from controlplane.automation.actuators.sleep import SleepActuator
from controlplane.automation.actuators.webhook import WebhookActuator
from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.actuator_settings import SETTINGS, KubernetesSettings
from controlplane.fleet.models.pool import ActuatorKind, Pool
from routing.values.prepared_struct import prepared

CONFIRMED = "confirmed_by"


class ManualActuator(Actuator):
    """Asks a person to act, and waits for the confirmation (controlplane.automation.engine_actions.confirm)."""

    can_change_role = True

    @override
    def start(self, action: EngineAction) -> ActuatorAnswer:
        """Ask for one more engine. The action is done when the engine is registered."""
        return ActuatorAnswer(
            ActionProgress.UNDER_WAY, f"Start one {action.role} engine and register it in {action.pool.slug}."
        )

    @override
    def undo(self, action: EngineAction) -> ActuatorAnswer:
        """Do nothing, because the console shows that the action has ended."""
        return ActuatorAnswer(ActionProgress.IN_EFFECT)

    @override
    def stop(self, action: EngineAction) -> ActuatorAnswer:
        """Ask for the engine to be stopped."""
        return _asked(action, f"{action.engine_name} is drained. Stop it, then confirm.")

    @override
    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        """Ask for the engine to be restarted in another role."""
        return _asked(action, f"{action.engine_name} is drained. Restart it as a {action.role} engine, then confirm.")


def _asked(action: EngineAction, says: str) -> ActuatorAnswer:
    if action.actuator_state.get(CONFIRMED):
        return ActuatorAnswer(ActionProgress.IN_EFFECT, f"done by {action.actuator_state[CONFIRMED]}")
    return ActuatorAnswer(ActionProgress.UNDER_WAY, says)


def _kubernetes(settings: KubernetesSettings) -> Actuator:
    # The client takes half a second and some memory to import, which only those who use it should pay.
    from controlplane.automation.actuators.kubernetes import KubernetesActuator

    return KubernetesActuator(settings)


ACTUATORS: dict[str, Callable[[Any], Actuator]] = {
    ActuatorKind.MANUAL: lambda _settings: ManualActuator(),
    ActuatorKind.PROCESS: ProcessActuator,
    ActuatorKind.WEBHOOK: WebhookActuator,
    ActuatorKind.KUBERNETES: _kubernetes,
    ActuatorKind.SLEEP: lambda _settings: SleepActuator(),
}


def actuator_of(pool: Pool) -> Actuator:
    """Return the pool's actuator with its settings, which were validated before they were stored."""
    return ACTUATORS[pool.actuator](msgspec.convert(pool.actuator_settings, prepared(SETTINGS[pool.actuator])))
