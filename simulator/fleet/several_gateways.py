"""One pool behind several gateways: one gateway decides for all, or each gateway decides alone.

A balancer assigns each request to a random gateway. All gateways receive the engines' KV events and reports. A gateway
that decides alone does not know what the others have dispatched and queued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from typing_extensions import override

from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy
from routing.registry import Table
from routing.router import Router
from routing.values.decision import Outcome
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, Observation
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import RequestRecord


class SeparateGateways(Router):
    """Gateways that do not know about each other. This router belongs to the first gateway, `others` to the others.

    Mutable besides the routers: which gateway has each request. Samples show the first gateway's view.
    """

    def __init__(self, policy: RoutingPolicy, gateways: int, *, seed: int, placements: Table) -> None:
        super().__init__("simulation", policy, 1, seed=seed, placements=placements)
        self.others = [Router("simulation", policy, 1, seed=seed, placements=placements) for _ in range(gateways - 1)]
        # Not the router's generator, whose draws must not depend on the number of gateways.
        self._rng = Random(f"{seed}:balancer")
        self._of: dict[str, int] = {}

    @override
    def set_engines(self, engines: Sequence[EngineFacts], now: float) -> list[Outcome]:
        return self._all(super().set_engines(engines, now), lambda item: item.set_engines(engines, now))

    @override
    def set_policy(self, policy: RoutingPolicy, version: int, now: float) -> list[Outcome]:
        return self._all(super().set_policy(policy, version, now), lambda item: item.set_policy(policy, version, now))

    @override
    def tick(self, now: float) -> list[Outcome]:
        return self._all(super().tick(now), lambda item: item.tick(now))

    @override
    def report(self, engine_id: str, pending: int, now: float, room_tokens: int | None = None) -> list[Outcome]:
        first = super().report(engine_id, pending, now, room_tokens)
        return self._all(first, lambda item: item.report(engine_id, pending, now, room_tokens))

    @override
    def note_memory(self, engine_id: str, kv_usage: float) -> None:
        super().note_memory(engine_id, kv_usage)
        for other in self.others:
            other.note_memory(engine_id, kv_usage)

    @override
    def blocks_stored(self, engine_id: str, keys: Sequence[int]) -> None:
        super().blocks_stored(engine_id, keys)
        for other in self.others:
            other.blocks_stored(engine_id, keys)

    @override
    def blocks_removed(self, engine_id: str, keys: Sequence[int]) -> None:
        super().blocks_removed(engine_id, keys)
        for other in self.others:
            other.blocks_removed(engine_id, keys)

    @override
    def place(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> Outcome:
        number = self._of.get(request.request_id)
        if number is None:
            number = self._of[request.request_id] = self._rng.randrange(len(self.others) + 1)
        if number:
            return self.others[number - 1].place(request, now, hold=hold, excluded=excluded)
        return super().place(request, now, hold=hold, excluded=excluded)

    @override
    def observe(self, observation: Observation, now: float) -> list[Outcome]:
        request_id = observation.request_id
        number = self._of.get(request_id, 0)
        if isinstance(observation, Completed | Failed):
            self._of.pop(request_id, None)
        return self.others[number - 1].observe(observation, now) if number else super().observe(observation, now)

    @override
    def next_wake(self, now: float) -> float | None:
        wakes = [super().next_wake(now), *(other.next_wake(now) for other in self.others)]
        return min((wake for wake in wakes if wake is not None), default=None)

    @override
    def check(self) -> None:
        super().check()
        for other in self.others:
            other.check()

    def _all(self, outcomes: list[Outcome], call: Callable[[Router], list[Outcome]]) -> list[Outcome]:
        return [*outcomes, *(outcome for other in self.others for outcome in call(other))]


class UnownedPool(FleetSimulation):
    """A pool in which each gateway decides alone; the router is a SeparateGateways."""

    @override
    def _has_queued(self) -> bool:
        routers = [self.router, *(self.router.others if isinstance(self.router, SeparateGateways) else ())]
        return any(router.waiting or router.deferred for router in routers)


class OwnedPoolSimulation(FleetSimulation):
    """One gateway owns the pool. The others send it requests, half a round trip away, and relay responses themselves.

    Mutable besides the simulation's state: the requests that arrived at another gateway.
    """

    def __init__(self, *fleet: Any, gateways: int, rtt_s: float, seed: int, **options: Any) -> None:
        """`rtt_s` is the round trip between two gateways in seconds; all other arguments are FleetSimulation's."""
        self._gateways = gateways
        self._way_s = rtt_s / 2
        # Not the router's generator, whose draws must not depend on the number of gateways.
        self._rng = Random(f"{seed}:balancer")
        self._asked: set[str] = set()
        super().__init__(*fleet, **options)

    @override
    def _submit(self, record: RequestRecord) -> None:
        request = record.request
        if request.request_id not in self._asked and not self._rng.randrange(self._gateways):
            super()._submit(record)
            return
        self._asked.add(request.request_id)

        def arrive(simulation: FleetSimulation) -> None:
            simulation.take_outcome(simulation.router.place(request, simulation.now), record)

        self.call_at(self.now + self._way_s, arrive)

    @override
    def _send(self, station: Station, record: RequestRecord, loaded_blocks: int = 0) -> None:
        if record.request.request_id not in self._asked:
            super()._send(station, record, loaded_blocks)
            return

        def arrive(_simulation: FleetSimulation) -> None:
            if station.alive and station.live.get(record.request.request_id) is record:
                # Not super(), which would take this function's argument for self.
                FleetSimulation._send(self, station, record, loaded_blocks)

        self.call_at(self.now + self._way_s, arrive)

    @override
    def _observe(self, observation: Observation) -> None:
        if observation.request_id in self._asked:
            self.call_at(
                self.now + self._way_s,
                lambda simulation: simulation.deliver(simulation.router.observe(observation, simulation.now)),
            )
        else:
            super()._observe(observation)
