"""Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam 2018) over the start of the prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.policy.setting import about, fixed, number
from routing.rings.affinity_key import affinity_key
from routing.rings.hash_ring import HashRing
from routing.rings.ring_plan import RingPlan
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class ConsistentHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sends prompts that start alike to one engine of a hash ring, or to the next one if that has its share."""

    load_bound: Annotated[
        float,
        about("Load bound", "Maximum in-flight requests per engine, as a multiple of the mean."),
        number("× mean", ge=1, le=1000, usual=(1.1, 2)),
    ] = 1.25
    virtual_nodes: Annotated[int, fixed(ge=1, le=1000)] = 100
    """Points per engine on the ring; more points distribute keys more evenly."""
    key_blocks: Annotated[
        int,
        about("Key length", "Leading prompt blocks that determine the position on the ring."),
        number("blocks", ge=1, le=64, usual=(1, 4)),
    ] = 2

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the first engine clockwise of the key with fewer requests than its share allows."""
        accepting, requests = view.roster.accepting, view.load.in_flight_requests
        ring = view.derived(("hash_ring", self.virtual_nodes), self._build)
        # With this request in the mean, some engine always has fewer than its share.
        mean = (sum([requests[target] for target in accepting]) + 1) / len(accepting)
        share = math.ceil(self.load_bound * mean)
        reason = reasons.RING
        for position in ring.owners(affinity_key(request, self.key_blocks)):
            target = accepting[position]
            if requests[target] < share:
                break
            reason = reasons.RING_FULL
        else:
            raise AssertionError("some engine always has fewer requests than the mean with one more")
        blocks = view.match(request).blocks(target)
        return Choice(target, reason, (candidate(request, view, target, blocks, now),))

    def ring_plan(self) -> RingPlan:
        """Return the plan of its hash ring."""
        return RingPlan(1, self.virtual_nodes, False, self.key_blocks)

    def key_length(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of a prompt determine its position on the ring."""
        return min(self.key_blocks, len(keys))

    def _build(self, view: FleetView) -> HashRing:
        return HashRing(
            [view.roster.engine_ids[item] for item in view.roster.accepting], virtual_nodes=self.virtual_nodes
        )
