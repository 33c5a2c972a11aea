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
    """The action cannot be carried out in this form, and retries are useless. The message explains why."""


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
    """An actuator's response about an action."""

    progress: ActionProgress
    says: str = ""
    """Reason for waiting, as a sentence for people."""
    actuator_state: Mapping[str, Any] = field(default_factory=dict)
    """State for the actuator's next call, stored with the action before any other change."""
    engine: NewEngine | None = None
    """The engine that a start created, as soon as its address is known."""


class Actuator(Protocol):
    """Starts and stops single engines and changes their roles. Calls are idempotent per `action.key`.

    The first call begins the work; later calls report its progress. Calls may block for some seconds, so they run
    outside any transaction. They raise ActuatorError to request a retry, and RejectedActionError to give up.
    """

    can_change_role: bool
    """Whether `change_role` restarts an engine in another role. If False, one engine is stopped and another started."""
    keeps_engines: bool = False
    """Whether `stop` puts an engine to sleep and `start` wakes one, so that the engine stays registered."""

    def start(self, action: EngineAction) -> ActuatorAnswer:
        """Start one engine of `action.role`."""
        ...

    def undo(self, action: EngineAction) -> ActuatorAnswer:
        """Undo `start`, because the action is given up.

        IN_EFFECT if the start is undone or cannot be undone; in the second case, `says` explains why.
        """
        ...

    def stop(self, action: EngineAction) -> ActuatorAnswer:
        """Stop `action.engine`, which is already drained. When the stop is in effect, the engine may be deleted."""
        ...

    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        """Restart `action.engine`, which is already drained, in `action.role`."""
        ...
