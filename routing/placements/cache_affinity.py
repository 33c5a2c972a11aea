"""Fixed affinity: equal prompt starts always go to the same engine (DualMap §2.2 calls it cache affinity).

A hot prefix is never spread, so its engine is overloaded. Research on scheduling §4 shows by how much.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.policy.setting import about, number
from routing.rings.affinity_key import affinity_key
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class CacheAffinity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sends prompts that start alike to one engine, by their hash, whatever its load."""

    key_blocks: Annotated[
        int,
        about("Key length", "Leading prompt blocks that determine the engine."),
        number("blocks", ge=1, le=64, usual=(1, 4)),
    ] = 2

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine whose position is the key's hash modulo the number of engines."""
        target = view.roster.accepting[affinity_key(request, self.key_blocks) % len(view.roster.accepting)]
        blocks = view.match(request).blocks(target)
        return Choice(target, reasons.AFFINITY, (candidate(request, view, target, blocks, now),))
