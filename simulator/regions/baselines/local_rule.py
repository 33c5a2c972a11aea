"""The local layer of SkyWalker and of its rivals: a region rule as the placement of one router (§3.2, §3.3)."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from routing.chain.region_loads import engine_loads, pool_load, session_key
from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.policy.dispatch_limit_document import BLIND
from routing.regions.region_rule import RegionRule
from routing.regions.region_view import RegionEngineLoad, RegionView
from routing.router import Router
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice
from routing.values.inference_request import InferenceRequest


class LocalRule:
    """Applies a rule to the router's engines, first come, first served: the longest waiting request blocks the others.

    An engine has room below the router's dispatch limit; with blind pushing, each one has.
    """

    def __init__(self, rule: RegionRule, router: Router) -> None:
        self._rule, self._router = rule, router

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine that the rule chooses, CENTRAL if the request waits."""
        router = self._router
        if router.waiting.has(CENTRAL) and router.waiting.first(CENTRAL).request is not request:
            return Choice(CENTRAL, reasons.ALL_BUSY)
        load = pool_load(router, now)
        engines = tuple([self._load(engine, view) for engine in engine_loads(router, request, now)])
        choice = self._rule.choose(
            RegionView(
                request.prompt_tokens,
                session_key(request),
                now - request.arrived_s,
                view.load.decisions,
                (load.in_flight + load.queued) / len(engines),
                engines,
            )
        )
        if choice.engine is None:
            return Choice(CENTRAL, reasons.ALL_BUSY)
        target = view.roster.accepting[choice.engine]
        blocks = view.match(request).blocks(target)
        return Choice(target, choice.reason, (candidate(request, view, target, blocks, now),))

    def _load(self, engine: RegionEngineLoad, view: FleetView) -> RegionEngineLoad:
        """Return the load with the size of the engine's tree, which grows by what was sent there."""
        target = self._router.fleet.known_target(engine.engine_id)
        room = engine.has_room or self._router.policy.dispatch_limit.mode == BLIND
        return replace(engine, has_room=room, indexed_tokens=view.load.sent_blocks[target])
