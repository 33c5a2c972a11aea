"""A simulated fleet whose engines prefill or decode: the router's engine pairs, and the KV in transfer between them.

A request is assigned a prefill engine together with a decode engine (Mooncake Alg. 1). After the prefill, the request
belongs to the decode engine, which starts once the KV has arrived over the link and fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from planning.facts.fleet_facts import Role
from routing.router import Router
from routing.values.decision import Decision
from simulator.engine_models.engine_events import EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.pd import DecodeRole, Handover, PrefillRole
from simulator.engine_models.simulated_engine import SimulatedEngine
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_changes import EngineJoins
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import RequestRecord
from simulator.workloads.arrivals import ArrivalSource


def role_builder(profile: EngineProfile) -> Callable[[Role], SimulatedEngine]:
    """Return a function that builds an engine for a role with this profile."""

    def build(role: Role) -> SimulatedEngine:
        return PrefillRole(profile) if role == "prefill" else DecodeRole(profile)

    return build


class DisaggregatedFleet(FleetSimulation):
    """A fleet of prefill and decode engines. Mutable besides the fleet's state: the decode engine of each request
    that prefills.
    """

    def __init__(
        self,
        router: Router,
        source: ArrivalSource,
        profile: EngineProfile,
        roles: Mapping[str, Role],
        **options: Any,
    ) -> None:
        """Takes the same options as FleetSimulation."""
        build = role_builder(profile)
        # Without engines: they join below, each in its role.
        super().__init__(router, source, lambda: build("prefill"), (), **options)
        self._pairs: dict[str, str] = {}
        self.stations.build_role = build
        for engine_id, role in roles.items():
            self.change(EngineJoins(0.0, engine_id, role=role))

    @override
    def check(self) -> None:
        """Raise AssertionError unless router, engines, records, and pairs are consistent."""
        super().check()
        if any(name not in self.records or self.records[name].finished_s is not None for name in self._pairs):
            raise AssertionError("a pair outlived its request")

    @override
    def _dispatch(self, record: RequestRecord, decision: Decision) -> None:
        # An answer of one token ends with its prefill.
        if decision.pair is not None and record.output_tokens > 1:
            self._pairs[record.request.request_id] = decision.pair.engine_id
        super()._dispatch(record, decision)

    @override
    def _take_in(self, station: Station, events: list[EngineEvent]) -> None:
        super()._take_in(station, events)
        if isinstance(station.engine, PrefillRole):
            self._hand_over(station, station.engine.take_handovers())

    def _hand_over(self, station: Station, handovers: Sequence[Handover]) -> None:
        """Send computed prompts to their decode engines, which receive them after the link has delivered."""
        for handover in handovers:
            request_id = handover.sequence.request_id
            record = station.live.pop(request_id, None)
            decoder = self.stations.get(self._pairs.pop(request_id, ""))
            if record is None:
                continue
            if decoder is None or not isinstance(decoder.engine, DecodeRole):
                self._fail(record)
                continue
            # From here on it is lost with the decode engine.
            decoder.live[request_id] = record
            self.call_at(handover.ready_s, _arrival(decoder, handover))

    def start_decode(self, decoder: Station, handover: Handover) -> None:
        """Start an arrived prompt on its decode engine. Both can be gone by then; a prompt that is too long fails."""
        request_id = handover.sequence.request_id
        if not decoder.alive or request_id not in decoder.live:
            return
        try:
            decoder.engine.submit(handover.sequence, self.now)
        except ValueError:
            self._fail(decoder.live.pop(request_id))
        else:
            self._schedule(decoder)


def _arrival(decoder: Station, handover: Handover) -> Callable[[FleetSimulation], None]:
    def arrives(running: FleetSimulation) -> None:
        if isinstance(running, DisaggregatedFleet):
            running.start_decode(decoder, handover)

    return arrives
