"""SkyWalker inside one region (§3.2, §3.3, Algorithm 1): requests wait unbound until an engine has nothing pending.

Selective pushing by pending requests: the head of a first-come queue goes to the engine with the longest match, or to
the next one on the ring of its session (SkyWalker-CH), among engines whose pending requests are within the limit.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate, least
from routing.policy.setting import about, fixed
from routing.rings.affinity_key import session_hash
from routing.rings.hash_ring import HashRing
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice
from routing.values.inference_request import InferenceRequest


class SkyWalker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds requests until some engine has nothing pending, then picks the one that holds most of the prompt."""

    by: Annotated[
        Literal["prefix", "session"],
        about("Affinity", "prefix: longest match. session: the next engine on a hash ring of sessions (SkyWalker-CH)."),
    ] = "prefix"
    pending: Annotated[
        Literal["own", "reported"],
        about(
            "Pending requests",
            "own: requests of this pool without a first token. reported: accepted requests that have not started, in "
            "the engine's last report, as published; combine it with dispatch when `reported`.",
        ),
    ] = "own"
    pending_limit: Annotated[int, fixed(ge=0, le=10_000)] = 0
    """Maximum requests without a first token at an engine that still accepts another."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the available engine with the longest match or next on the ring, CENTRAL if none is available."""
        held = view.held(view.match(request))
        pending = {target: self._pending(view, target, now) for target in view.roster.accepting}
        free = {target: -float(held[target]) for target, count in pending.items() if count <= self.pending_limit}
        if free and self.by == "session":
            ring = view.derived("session_ring", _session_ring)
            owners = (view.roster.accepting[position] for position in ring.owners(session_hash(request)))
            target = next(owner for owner in owners if owner in free)
            chosen = candidate(request, view, target, held[target], now)
            return Choice(target, reasons.SESSION_RING, (chosen,))
        if free:
            return least(request, view, now, held, free, reasons.FREE_MATCH)
        costs = {target: float(count) for target, count in pending.items()}
        # For the record only: the request waits for any of them.
        fewest = least(request, view, now, held, costs, reasons.ALL_BUSY)
        return Choice(CENTRAL, reasons.ALL_BUSY, fewest.candidates)

    def _pending(self, view: FleetView, target: int, now: float) -> int:
        load = view.load
        if self.pending == "reported" and now < load.room_until[target]:
            return load.reported_pending[target]
        return load.pending_requests[target]


def _session_ring(view: FleetView) -> HashRing:
    return HashRing([view.roster.engine_ids[target] for target in view.roster.accepting], virtual_nodes=100)
