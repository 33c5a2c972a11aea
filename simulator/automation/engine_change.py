"""One change that an automation made to a simulated fleet: the engine, the change, and when it was complete."""

from __future__ import annotations

from typing import Literal

import msgspec

from planning.facts.fleet_facts import Role


class EngineChange(msgspec.Struct, frozen=True):
    """One engine that was added, removed, or added again in another role."""

    at_s: float
    engine_id: str
    what: Literal["added", "removed", "turned"]
    role: Role
    """The engine's role after the change, or before its removal."""
