"""Interface between the jobs and whatever starts and stops engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from controlplane.automation.models.engine_action import EngineAction


class ActuatorError(RuntimeError):
    """The actuator was unreachable or could not report the result of the call; the order is retried."""


class RejectedActionError(RuntimeError):
    """The order can never be carried out as it is; the message says why."""


class ActionProgress(StrEnum):
    """What became of an order."""

    UNDER_WAY = "under_way"
    IN_EFFECT = "in_effect"


@dataclass(frozen=True, slots=True)
class NewEngine:
    """An engine that was started, as it is to be registered."""

    name: str
    url: str
    kv_events_endpoint: str = ""
    kv_replay_endpoint: str = ""
    supervised: bool = False
    kv_node: str = ""


@dataclass(frozen=True, slots=True)
class ActuatorAnswer:
    """An actuator's answer about an order."""

    progress: ActionProgress
    says: str = ""
    """Where it hangs, as a sentence for people."""
    actuator_state: Mapping[str, Any] = field(default_factory=dict)
    """What it wants to know again when it is asked next; kept with the order before anything else happens."""
    engine: NewEngine | None = None
    """The engine that a start made, as soon as its address is known."""


class Actuator(Protocol):
    """Starts, stops, and flips single engines; every call may be repeated and has one effect per `order.key`.

    The first call begins the work; later calls report its progress. Calls may block for some seconds; they run outside
    any transaction. They raise ActuatorError to be retried, and RejectedActionError to give up.
    """

    can_flip: bool
    """Whether `flip` brings an engine back in another role; where not, one is stopped and one started."""

    def start(self, order: EngineAction) -> ActuatorAnswer:
        """Start one engine of `order.role`."""
        ...

    def undo(self, order: EngineAction) -> ActuatorAnswer:
        """Take back what `start` began, because the order is given up; in effect: it is, or cannot be and says why."""
        ...

    def stop(self, order: EngineAction) -> ActuatorAnswer:
        """Stop `order.engine`, which is drained; in effect: it may be forgotten."""
        ...

    def flip(self, order: EngineAction) -> ActuatorAnswer:
        """Bring `order.engine`, which is drained, back in `order.role`."""
        ...
