"""Placement rules of textbooks and papers' baselines: each uses one fact about the engines, or none."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate, least, least_ttft
from routing.policy.setting import about, number
from routing.rings.affinity_key import affinity_key
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class RandomEngine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks an engine at random, regardless of cache and load (Mooncake Fig. 5)."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return a random engine."""
        target = rng.choice(view.roster.accepting)
        blocks = view.match(request).blocks(target)
        return Choice(target, reasons.RANDOM, (candidate(request, view, target, blocks, now),))


class PowerOfTwo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Draws two engines at random and picks the one with fewer in-flight requests (Mitzenmacher 2001)."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the less loaded of two engines drawn without replacement, or the only engine of the pool."""
        held = view.held(view.match(request))
        return two_choices(request, view, now, held, rng)


class FewestRequests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine with the fewest in-flight requests, as serving systems without knowledge of caches balance them
    (SYMPHONY §3.3).
    """

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the fewest in-flight requests; the prompt breaks ties."""
        requests = view.load.in_flight_requests
        costs = {target: float(requests[target]) for target in view.roster.accepting}
        return least(request, view, now, view.held(view.match(request)), costs, reasons.LEAST_LOADED)


class CacheAffinity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sends prompts that start alike to one engine, by their hash, whatever its load (DualMap §2.2).

    A hot prefix is never spread, so its engine is overloaded. Research on scheduling §4 shows by how much.
    """

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


class MinTtft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine with the lowest wait plus prefill time, counting its own cached blocks (Mooncake §4.1)."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the lowest wait + compute time."""
        return least_ttft(request, view, now, view.match(request), reasons.LEAST_TTFT)


def two_choices(request: InferenceRequest, view: FleetView, now: float, held: list[int], rng: Random) -> Choice:
    """Return the less loaded of two random engines. `held` is indexed by target."""
    drawn = rng.sample(view.roster.accepting, min(2, len(view.roster.accepting)))
    requests = {target: float(view.load.in_flight_requests[target]) for target in drawn}
    return least(request, view, now, held, requests, reasons.TWO_CHOICES)
