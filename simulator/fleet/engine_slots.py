"""The engines of a simulated fleet, each with its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from planning.facts.fleet_facts import Role
from routing.ledger.fleet_view import EngineFacts
from simulator.engine_models.simulated_engine import SimulatedEngine, SizedEngine
from simulator.fleet.request_record import RequestRecord


class LoadReport(NamedTuple):
    """The load that an engine reports to a probe."""

    waiting: int
    """Number of requests that the engine has not started."""
    room_tokens: int | None
    """Free memory in tokens, from its usage and size; None if its memory is divided."""
    kv_usage: float


@dataclass(slots=True, eq=False)
class Station:
    """One incarnation of one engine. Mutable: `due_s`, `live` (its requests), `accepts`, `load_share`, `alive`."""

    engine_id: str
    incarnation: int
    engine: SimulatedEngine
    speed: float
    role: Role = "mixed"
    due_s: float | None = None
    """Time of the engine's event on the clock."""
    live: dict[str, RequestRecord] = field(default_factory=dict)
    accepts: bool = True
    load_share: float = 1.0
    """Share of its usual load that the engine should get; 0 for none."""
    alive: bool = True
    _sized: SizedEngine | None = field(init=False)

    def __post_init__(self) -> None:
        self._sized = self.engine if isinstance(self.engine, SizedEngine) else None

    @property
    def load(self) -> LoadReport:
        """The load that the engine would report now."""
        room = None if self._sized is None else int((1.0 - self._sized.kv_usage) * self._sized.kv_tokens)
        return LoadReport(self.engine.waiting, room, self.engine.kv_usage)


class UnknownSlotError(ValueError):
    """A change of the fleet names an unknown engine."""


class Stations:
    """Engine id → the station of its current incarnation. Mutable state: `_stations` and `_incarnations`."""

    def __init__(self, build_engine: Callable[[], SimulatedEngine]) -> None:
        self._build_engine = build_engine
        self.build_role: Callable[[Role], SimulatedEngine] | None = None
        """Constructor of the engines of a role; a fleet without roles needs none."""
        self._stations: dict[str, Station] = {}
        self._incarnations: dict[str, int] = {}

    def of(self, engine_id: str) -> Station:
        """Return the engine's station; raise UnknownSlotError if there is none."""
        station = self._stations.get(engine_id)
        if station is None:
            raise UnknownSlotError(f"engine {engine_id!r} is not in the fleet; there are {sorted(self._stations)}")
        return station

    def get(self, engine_id: str) -> Station | None:
        """Return the engine's station, None if there is none."""
        return self._stations.get(engine_id)

    def __iter__(self) -> Iterator[Station]:
        # A copy, since callers remove engines while they iterate.
        return iter(list(self._stations.values()))

    def facts(self) -> list[EngineFacts]:
        """Return the facts of all engines for the router."""
        return [
            EngineFacts(
                station.engine_id,
                station.incarnation,
                station.accepts and station.load_share > 0,
                # A share of 0 already accepts nothing, and a speed of 0 could not be divided by.
                station.speed * (station.load_share or 1.0),
                role=station.role,
            )
            for station in self._stations.values()
        ]

    def join(self, engine_id: str, speed: float, role: Role = "mixed") -> list[RequestRecord]:
        """Add a new engine with an empty cache. An existing engine with this id dies (see `die`)."""
        if role == "mixed":
            engine = self._build_engine()
        elif self.build_role is not None:
            engine = self.build_role(role)
        else:
            raise UnknownSlotError(f"engine {engine_id!r} is to be a {role} engine, but the fleet has no roles")
        # After the new engine is built: a wrong role must not cost the old one.
        orphans = self.die(engine_id) if engine_id in self._stations else []
        incarnation = self._incarnations[engine_id] = self._incarnations.get(engine_id, 0) + 1
        self._stations[engine_id] = Station(engine_id, incarnation, engine, speed, role)
        return orphans

    def drain(self, engine_id: str) -> None:
        """Stop assigning new work to the engine."""
        self.of(engine_id).accepts = False

    def weigh(self, engine_id: str, load_share: float) -> None:
        """Give the engine a share of its usual load; its speed appears lower by that factor."""
        self.of(engine_id).load_share = load_share

    def withdraw(self, engine_id: str, now: float) -> list[RequestRecord]:
        """Remove and return the engine's requests without a first token."""
        station = self.of(engine_id)
        records = [item for item in station.live.values() if item.first_token_s is None]
        for record in records:
            station.engine.abort(record.request.request_id, now)
            del station.live[record.request.request_id]
        return records

    def die(self, engine_id: str) -> list[RequestRecord]:
        """Remove the engine and return its requests in order of dispatch."""
        station = self.of(engine_id)
        station.alive = False
        del self._stations[engine_id]
        return list(station.live.values())

    def check(self) -> None:
        """Raise AssertionError unless every engine is consistent and holds only requests that it was given."""
        for station in self._stations.values():
            station.engine.check()
            if station.engine.running + station.engine.waiting > len(station.live):
                raise AssertionError(f"{station.engine_id} works on more than it was given")
