"""One pool behind several gateways: one gateway decides for all, or each gateway decides alone.

A balancer assigns each request to a random gateway, which relays it. All gateways receive the engines' KV events and
reports. Each gateway drives the production link to the pool's owner, whose messages take half a round trip. A gateway
that decides alone does not know what the others have dispatched and queued.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from typing_extensions import override

from routing.chain.decider import Decider
from routing.chain.owner_decider import OwnerDecider
from routing.chain.owner_messages import Ask, OwnerAnswered, OwnerEpoch, OwnerMessage
from routing.chain.ownership import ASKS, Around, Ownership
from routing.router import Router
from routing.values.decision import ChainOutcome, Decision, Outcome, Queued
from routing.values.inference_request import InferenceRequest
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import RequestRecord
from simulator.link import Link

SETTLE_S = 0.1
"""Seconds between a gateway's checks for late answers, as in gateways."""


class SharingGateway:
    """One gateway with its link to the pool's owner. It reaches all other gateways, which use the same secret."""

    def __init__(self, tag: str, router: Router) -> None:
        self.router = router
        self.link = OwnerDecider(router, router, Ownership(tag, 0.0), self)

    def session(self, tag: str) -> str:
        """Return the gateway's tag: no connection is lost."""
        return tag

    def name_of(self, tag: str) -> str:
        """Return the gateway's name."""
        return tag

    def has_same_keys(self, _tag: str) -> bool:
        """Return True: all gateways have one secret."""
        return True

    def unreachable_here(self) -> frozenset[str]:
        """Return no engines: each gateway reaches all of them."""
        return frozenset()

    def count(self, result: str) -> None:
        """Count nothing."""

    def advisory_followed(self, _request: InferenceRequest, _decision: Decision) -> None:
        """Return None: no session is announced."""

    def take_advisory(self, request_id: str, advisory: object) -> None:
        """Record nothing: no session is announced."""


class SharedPoolSimulation(FleetSimulation):
    """A pool behind several gateways; the first one owns it, if any.

    Mutable besides the simulation's state: the gateways, the gateway of each request, and whether they settle again.
    """

    def __init__(
        self, router: Router, *fleet: Any, others: Sequence[Router], rtt_s: float | None, seed: int, **options: Any
    ) -> None:
        """`rtt_s` is the round trip between two gateways in seconds, None if each decides alone."""
        self._gateways = [SharingGateway(str(number), one) for number, one in enumerate((router, *others))]
        self._epoch = OwnerEpoch(0 if rtt_s is None else 1, "" if rtt_s is None else "0")
        self._way = Link(latency_s=(rtt_s or 0.0) / 2)
        # Not the router's generator, whose draws must not depend on the number of gateways.
        self._rng = Random(f"{seed}:balancer")
        self._of: dict[str, SharingGateway] = {}
        super().__init__(router, *fleet, others=others, **options)
        self._settle(self)

    def _settle(self, _simulation: FleetSimulation) -> None:
        """Do each gateway's periodic work: it receives the owner's heartbeat, and judges whether answers are late."""
        now, tags = self.now, frozenset(map(str, range(len(self._gateways))))
        for number, gateway in enumerate(self._gateways):
            link, ownership, others = gateway.link, gateway.link.ownership, tags - {str(number)}
            self.deliver(link.sweep(now, now))
            ownership.receive(self._epoch, self._epoch.owner, now)
            if not number:
                ownership.renewed(now)
            ownership.settle(Around(others, others, frozenset(), frozenset(), True), now)
            epoch = ownership.seen if ownership.role == ASKS else None
            if epoch != link.epoch:
                self.deliver(link.follow(epoch, partial(self._is_of, gateway), now))
        # Without another event, no answer is in transit, so none can be late.
        self._settles = self.clock.next_s < math.inf
        if self._settles:
            self.call_at(now + SETTLE_S, self._settle)

    def _is_of(self, gateway: SharingGateway, request_id: str) -> bool:
        return self._of.get(request_id) is gateway

    @override
    def _every(self, call: Callable[[Router], list[Outcome]]) -> None:
        for gateway in self._gateways:
            self.deliver(gateway.link.followed(call(gateway.router), self.now))

    @override
    def _chain_of(self, request_id: str) -> Decider:
        gateway = self._of.get(request_id)
        if gateway is None:
            gateway = self._of[request_id] = self._rng.choice(self._gateways)
        return gateway.link

    @override
    def _submit(self, record: RequestRecord) -> None:
        if not self._settles:
            self._settle(self)
        super()._submit(record)

    @override
    def deliver(self, outcomes: Sequence[ChainOutcome]) -> None:
        """Apply a chain's outcomes, and send its messages to the other gateways."""
        super().deliver(outcomes)
        for sender in self._gateways:
            for tag, message in sender.link.take_messages() if sender.link.outbox else ():
                arrives = partial(self._receive, self._gateways[int(tag)], str(self._gateways.index(sender)), message)
                self.call_at(self._way.carry(0, self.now), arrives)

    def _receive(self, gateway: SharingGateway, sender: str, message: OwnerMessage, _simulation: object) -> None:
        link, waiting = gateway.link, gateway.router.waiting
        if isinstance(message, OwnerAnswered):
            self.deliver(link.answered(message, self.now))
            return
        self.deliver(link.receive(sender, message, self.now, same_keys=True))
        name = message.request.request_id if isinstance(message, Ask) else ""
        if self.nodes is not None and name in waiting:
            # Blocks are moved for the owner's queue, whichever gateway asked.
            queued = Queued(waiting.decision(name), waiting.queued(name).loads)
            self.nodes.queued(self.records[name].request, queued, self.now)

    @override
    def _dispatch(self, record: RequestRecord, decision: Decision) -> None:
        if self.stations.get(decision.engine_id) is None:
            # The engine died while the owner's answer was in transit.
            self._orphan(record)
            return
        if not record.engine_id and decision.migrated_s:
            # In the owner's queue.
            record.migrations += 1
        super()._dispatch(record, decision)
