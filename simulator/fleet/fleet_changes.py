"""Changes of the fleet during a simulation, as values with a time in seconds."""

from __future__ import annotations

import msgspec

from planning.facts.fleet_facts import Role
from routing.policy.policy_document import RoutingPolicy


class EngineJoins(msgspec.Struct, frozen=True, tag=True):
    """A new engine with an empty cache accepts work from this time on; a reused id is a new incarnation."""

    at_s: float
    engine_id: str
    speed: float = 1.0
    """Prefill speed relative to the profile, as the router assumes it; the engine itself runs at the profile's
    speed.
    """
    role: Role = "mixed"


class EngineDrains(msgspec.Struct, frozen=True, tag=True):
    """The engine takes no new work and finishes what it has."""

    at_s: float
    engine_id: str


class EngineDies(msgspec.Struct, frozen=True, tag=True):
    """The engine and its cache are lost. Requests without a first token are placed again, the others fail."""

    at_s: float
    engine_id: str


class EngineWeighs(msgspec.Struct, frozen=True, tag=True):
    """The engine gets this share of its usual load, as engine health sets it; 0 means no new work.

    With `rescue`, its requests without a first token are placed again, like those of a dead engine in a gateway.
    """

    at_s: float
    engine_id: str
    load_share: float
    rescue: bool = False


class PolicyChanges(msgspec.Struct, frozen=True, tag=True):
    """The router follows another policy from this time on."""

    at_s: float
    policy: RoutingPolicy


FleetChange = EngineJoins | EngineDrains | EngineDies | EngineWeighs | PolicyChanges
