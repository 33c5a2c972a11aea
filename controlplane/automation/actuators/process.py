"""Starts simulated engines as child processes of the supervisor (project.processes.serving).

The database rows are the desired state: the supervisor starts a process for each registered supervised engine, ends it
when the engine is deleted, and restarts it when its role changes. Thus no command is sent twice or lost.
"""

from __future__ import annotations

from collections import Counter

from django.conf import settings
from typing_extensions import override

from controlplane.automation.actuators.actuator import (
    ActionProgress,
    Actuator,
    ActuatorAnswer,
    NewEngine,
    RejectedActionError,
)
from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.actuator_settings import ProcessSettings
from controlplane.fleet.loopback_ports import (
    PORTS_PER_ENGINE,
    NoFreePortError,
    engine_addresses,
    engine_ports_in_use,
    free_ports,
)
from routing.values.counted import count


class ProcessActuator(Actuator):
    """Chooses names and ports. The supervisor starts and ends the processes."""

    can_change_role = True

    def __init__(self, limits: ProcessSettings) -> None:
        self._limits = limits

    @override
    def start(self, action: EngineAction) -> ActuatorAnswer:
        """Return a new engine on free ports. Its process starts after the engine is registered."""
        mine = {engine.name for engine in action.pool.engines.all()}
        if len(mine) >= self._limits.max_engines:
            raise RejectedActionError(
                f"The pool has {count(len(mine), 'engine')}; the actuator settings allow no more processes."
            )
        try:
            ports = free_ports(PORTS_PER_ENGINE, start=settings.DEMO_PORTS_FROM, taken=engine_ports_in_use())
        except NoFreePortError as error:
            raise RejectedActionError(str(error)) from error
        engine = NewEngine(
            name=_free_name(mine), **engine_addresses(ports), supervised=True, kv_node=_least_used_node(action)
        )
        return ActuatorAnswer(ActionProgress.UNDER_WAY, "process is starting", engine=engine)

    @override
    def undo(self, action: EngineAction) -> ActuatorAnswer:
        """Do nothing, because the process ends when its engine is deleted."""
        return ActuatorAnswer(ActionProgress.IN_EFFECT)

    @override
    def stop(self, action: EngineAction) -> ActuatorAnswer:
        """Report that the engine may be deleted, which ends its process."""
        return ActuatorAnswer(ActionProgress.IN_EFFECT, "process stopped")

    @override
    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        """Report that the role may change, which restarts the process."""
        return ActuatorAnswer(ActionProgress.IN_EFFECT, f"process restarts as a {action.role} engine")


def _least_used_node(action: EngineAction) -> str:
    """Return the node manager used by the fewest engines of the pool; empty if no engine names one."""
    used = Counter(action.pool.engines.exclude(kv_node="").values_list("kv_node", flat=True))
    return min(sorted(used), key=lambda name: used[name], default="")


def _free_name(taken: set[str]) -> str:
    return next(name for number in range(1, len(taken) + 2) if (name := f"e-{number:02d}") not in taken)
