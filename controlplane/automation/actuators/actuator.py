"""Interface between the jobs and the systems that start and stop engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from controlplane.automation.models.engine_action import EngineAction


class ActuatorError(RuntimeError):
    """The actuator was unreachable or could not report the result of the call; the action is retried."""


class RejectedActionError(RuntimeError):
    """The action can never be carried out in this form; the message says why."""


class ActionProgress(StrEnum):
    """Progress of an action."""

    UNDER_WAY = "under_way"
    IN_EFFECT = "in_effect"


@dataclass(frozen=True, slots=True)
class NewEngine:
    """An engine that was started, with its registration data."""

    name: str
    url: str
    kv_events_endpoint: str = ""
    kv_replay_endpoint: str = ""
    supervised: bool = False
    kv_node: str = ""


@dataclass(frozen=True, slots=True)
class ActuatorAnswer:
    """An actuator's answer about an action."""

    progress: ActionProgress
    says: str = ""
    """What it waits for, as a sentence for people."""
    actuator_state: Mapping[str, Any] = field(default_factory=dict)
    """What the actuator needs at its next call; stored with the action before anything else happens."""
    engine: NewEngine | None = None
    """The engine that a start made, as soon as its address is known."""


class Actuator(Protocol):
    """Starts and stops single engines and changes their roles; a repeated call has one effect per `action.key`.

    The first call begins the work; later calls report its progress. Calls may block for some seconds; they run outside
    any transaction. They raise ActuatorError to be retried, and RejectedActionError to give up.
    """

    can_change_role: bool
    """Whether `change_role` brings an engine back in another role; if not, one is stopped and one started."""

    def start(self, action: EngineAction) -> ActuatorAnswer:
        """Start one engine of `action.role`."""
        ...

    def undo(self, action: EngineAction) -> ActuatorAnswer:
        """Take back what `start` began, because the action is given up.

        In effect once it is taken back, or cannot be, which `says` explains.
        """
        ...

    def stop(self, action: EngineAction) -> ActuatorAnswer:
        """Stop `action.engine`, which is drained; once in effect, the engine may be forgotten."""
        ...

    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        """Bring `action.engine`, which is drained, back in `action.role`."""
        ...
