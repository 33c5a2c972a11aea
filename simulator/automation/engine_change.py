"""One change of a simulated fleet that an automation made: which engine, what, and when it was complete."""

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
    """Its role after the change, or before its removal."""
