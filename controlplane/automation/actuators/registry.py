"""From a pool to its actuator: one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from controlplane.automation.actuators.actuator import Actuator
from controlplane.automation.actuators.manual import ManualActuator
from controlplane.automation.actuators.process import ProcessActuator
from controlplane.automation.actuators.webhook import WebhookActuator
from controlplane.fleet.actuator_settings import SETTINGS, KubernetesSettings
from controlplane.fleet.models.pool import ActuatorKind, Pool
from routing.values.prepared_struct import prepared


def _kubernetes(settings: KubernetesSettings) -> Actuator:
    # The client takes half a second and some memory to import, which only those who use it should pay.
    from controlplane.automation.actuators.kubernetes import KubernetesActuator

    return KubernetesActuator(settings)


ACTUATORS: dict[str, Callable[[Any], Actuator]] = {
    ActuatorKind.MANUAL: lambda _settings: ManualActuator(),
    ActuatorKind.PROCESS: ProcessActuator,
    ActuatorKind.WEBHOOK: WebhookActuator,
    ActuatorKind.KUBERNETES: _kubernetes,
}


def actuator_of(pool: Pool) -> Actuator:
    """Return the pool's actuator with its settings, which were validated when they were stored."""
    return ACTUATORS[pool.actuator](msgspec.convert(pool.actuator_settings, prepared(SETTINGS[pool.actuator])))
