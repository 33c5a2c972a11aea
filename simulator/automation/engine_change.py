"""One change of a simulated fleet that an automation made: what happened to which engine, and when it was done."""

from __future__ import annotations

from typing import Literal

import msgspec

from planning.facts.fleet_facts import Role


class EngineChange(msgspec.Struct, frozen=True):
    """One engine that came, went, or came back in another role."""

    at_s: float
    engine_id: str
    what: Literal["added", "removed", "turned"]
    role: Role
    """The role it has from then on, or had."""
