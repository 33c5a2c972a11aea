"""The rules of SkyWalker's rivals, and its local layer: a region rule as the placement of a router (§3.2, §3.3, §5.1).

Round robin and least load know one region. SGLang's router has a tree of prompts per engine (§5.2, SGL).
"""

from __future__ import annotations

from random import Random

import msgspec
from msgspec.structs import replace

from routing.chain.region_loads import engine_loads, pool_load
from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.policy.dispatch_limit_document import BLIND
from routing.regions.region_rule import RegionRule
from routing.regions.region_view import WAIT, RegionChoice, RegionEngineLoad, RegionView
from routing.rings.affinity_key import session_hash
from routing.router import Router
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice
from routing.values.inference_request import InferenceRequest


class RoundRobinRegions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engines in turn, skipping those without room. Never forwards."""

    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the next engine in turn."""
        count = len(view.engines)
        for step in range(count):
            at = (view.turn + step) % count
            if view.engines[at].has_room:
                return RegionChoice("round_robin", engine=at)
        return WAIT


class LeastLoad(msgspec.Struct, frozen=True):
    """Ignores prefixes and other regions."""

    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the engine with the fewest requests in flight."""
        free = [(engine.in_flight, at) for at, engine in enumerate(view.engines) if engine.has_room]
        return RegionChoice("least_loaded", engine=min(free)[1]) if free else WAIT


class SglangCacheAwareRegions(msgspec.Struct, frozen=True):
    """Longest match above `cache_threshold`, else the smallest tree; the fewest requests if loads are far apart."""

    cache_threshold: float = 0.5
    balance_abs_threshold: int = 32
    balance_rel_threshold: float = 1.0001
    lookahead: int = 1

    def choose(self, view: RegionView) -> RegionChoice:
        """Return the engine with room that the published rule chooses."""
        free = [(at, engine) for at, engine in enumerate(view.engines) if engine.has_room]
        if not free:
            return WAIT
        if self._unbalanced([engine.in_flight for _, engine in free]):
            return RegionChoice("least_loaded", engine=min(free, key=lambda item: (item[1].in_flight, item[0]))[0])
        at, longest = max(free, key=lambda item: (item[1].matched_tokens, -item[0]))
        if longest.matched_tokens > self.cache_threshold * view.prompt_tokens:
            return RegionChoice("longest_match", engine=at)
        return RegionChoice("smallest_tree", engine=min(free, key=_tree_size)[0])

    def _unbalanced(self, loads: list[int]) -> bool:
        most, least = max(loads), min(loads)
        return most - least > self.balance_abs_threshold and most > self.balance_rel_threshold * least


def _tree_size(indexed: tuple[int, RegionEngineLoad]) -> tuple[int, int]:
    return indexed[1].indexed_tokens, indexed[0]


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
                session_hash(request),
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
