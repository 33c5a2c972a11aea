"""First link of the chain: a request stays in its region or goes to another one, at once or while it is queued.

The pool's region rule chooses between local engines and other regions. If it chooses a local engine, or that the
request waits, the next link decides. A queued request is evaluated again at each heartbeat.
`Hop.reason` is the reason for a hop, as returned by a rule in routing/regions and named in routing/values/reasons.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec
from typing_extensions import override

from routing.chain.decider import ChainLink, Decider
from routing.chain.region_loads import engine_loads, pool_load
from routing.chain.region_targets import RegionPool, RegionTargets
from routing.policy.policy_document import RoutingPolicy
from routing.regions.region_view import PeerLoad, RegionChoice, RegionView
from routing.regions.registry import REGION_RULES, RegionRules, build_region_rule
from routing.rings.affinity_key import session_hash
from routing.values import reasons
from routing.values.decision import ChainOutcome, Elsewhere, Queued, Rejected, id_of
from routing.values.hop import Hop
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, ForwardFailed, Observation

MAX_FORWARDS = 2
"""Regions that a request is sent to before it stays in its own."""
_OVERLOAD = frozenset({
    reasons.NO_ENGINE, reasons.QUEUE_FULL, reasons.WAIT_EXPIRED, reasons.INFEASIBLE, reasons.PREFILL_OVERLOAD,
    reasons.DECODE_OVERLOAD, reasons.GATEWAY_LATE,
})  # fmt: skip
"""Rejections that mean that this region has no room."""


class _Known(msgspec.Struct, frozen=True, gc=False):
    """A request that waits here or is in another region."""

    request: InferenceRequest
    tried: frozenset[str]
    """Regions that have failed the request."""
    away: str = ""
    """The region that has it now; empty while it waits here."""


class RegionDecider(ChainLink[Decider]):
    """Applies one pool's region rule. Mutable: the rule, the turn, and the requests that wait here or are away.

    `own` returns the pool's engines as this gateway knows them. A caller with more rules, such as the simulator, passes
    its own table.
    """

    def __init__(
        self,
        chain: Decider,
        own: Callable[[], RegionPool],
        targets: RegionTargets,
        policy: RoutingPolicy,
        *,
        rules: RegionRules = REGION_RULES,
    ) -> None:
        super().__init__(chain)
        self._own, self._targets, self._rules = own, targets, rules
        self._waiting: dict[str, _Known] = {}
        self._away: dict[str, _Known] = {}
        self._turn = 0
        self.adopt(policy)

    def adopt(self, policy: RoutingPolicy) -> None:
        """Follow this policy's region rule."""
        self._rule = build_region_rule(policy, self._rules)

    @override
    def place(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> ChainOutcome:
        """Decide on a request. One that cannot wait, or that has failed on an engine, stays in its region."""
        if request.stays or not hold or excluded:
            return self._chain.place(request, now, hold=hold, excluded=excluded)
        return self._place(request, frozenset(), now)

    def _place(self, request: InferenceRequest, tried: frozenset[str], now: float) -> ChainOutcome:
        rule, own = self._rule, self._own()
        if own.region != self._targets.peers.region:
            # Another region's pool: the rules decide whether the request may go there.
            gone = self._ask(own, request, tried, now)
            return gone or own.router.count_outcome(Rejected(request.request_id, reasons.NO_ENGINE, 1.0))
        if rule is None or self._targets.is_alone(own.served_model):
            return self._chain.place(request, now)
        if len(self._waiting) < rule.lookahead and (gone := self._ask(own, request, tried, now)):
            return gone
        outcome = self._chain.place(request, now)
        if isinstance(outcome, Queued):
            self._waiting[request.request_id] = _Known(request, tried)
        return self._unless_overloaded(outcome, request, tried, now)

    def _unless_overloaded(
        self, outcome: ChainOutcome, request: InferenceRequest, tried: frozenset[str], now: float
    ) -> ChainOutcome:
        """Return the outcome, or another region for a request that this region rejects because of its load."""
        if not isinstance(outcome, Rejected) or outcome.code not in _OVERLOAD:
            return outcome
        return self._ask(self._own(), request, tried, now, rejected=True) or outcome

    @override
    def observe(self, observation: Observation, now: float) -> list[ChainOutcome]:
        """Process an observation; a failed forward is decided again."""
        name = observation.request_id
        away = self._away.get(name)
        if isinstance(observation, Completed | Failed | ForwardFailed):
            self._waiting.pop(name, None)
            self._away.pop(name, None)
        if away is None:
            return self.followed(self._chain.observe(observation, now), now)
        # No link after this one knows the request.
        if not isinstance(observation, ForwardFailed):
            return []
        return [self._place(away.request, away.tried | {away.away}, now)]

    @override
    def followed(self, outcomes: Iterable[ChainOutcome], now: float) -> list[ChainOutcome]:
        """Return what becomes of outcomes of the next link."""
        if not self._waiting:
            return list(outcomes)
        followed: list[ChainOutcome] = []
        for outcome in outcomes:
            waited = None if isinstance(outcome, Queued) else self._waiting.pop(id_of(outcome), None)
            followed.append(
                outcome if waited is None else self._unless_overloaded(outcome, waited.request, waited.tried, now)
            )
        return followed

    def heartbeat(self, now: float) -> list[ChainOutcome]:
        """Decide again on the longest waiting requests, up to the rule's lookahead."""
        rule = self._rule
        if rule is None or not self._waiting:
            return []
        own, outcomes = self._own(), list[ChainOutcome]()
        for name, waiting in list(self._waiting.items())[: rule.lookahead]:
            # An earlier departure may have dispatched it.
            if name in self._waiting and (gone := self._ask(own, waiting.request, waiting.tried, now)):
                del self._waiting[name]
                outcomes += [gone, *self.followed(self._chain.observe(Failed(name), now), now)]
        return outcomes

    def _ask(
        self, own: RegionPool, request: InferenceRequest, tried: frozenset[str], now: float, *, rejected: bool = False
    ) -> Elsewhere | None:
        """Return the rule's region for the request, None if it stays."""
        rule, home = self._rule, self._targets.peers.region
        targets = self._targets.of(request, own.served_model, tried, now) if len(tried) < MAX_FORWARDS else ()
        if rule is None or not targets:
            return None
        engines = engine_loads(own.router, request, now, own.report) if own.region == home else ()
        if rejected:
            # The router has rejected it: no engine here has room for it, whatever the loads are.
            engines = tuple([msgspec.structs.replace(engine, has_room=False) for engine in engines])
        loads = tuple([target.load for target in targets])
        if not engines:
            choice = _without_engines(loads)
        else:
            load = pool_load(own.router, now, own.report)
            self._turn += 1
            view = RegionView(
                request.prompt_tokens,
                session_hash(request),
                # Its time here is over, so that no rule's patience keeps it.
                math.inf if rejected else now - request.arrived_s,
                self._turn,
                (load.in_flight + load.queued) / len(engines),
                engines,
                loads,
            )
            choice = rule.choose(view)
        if choice.peer is None:
            return None
        target = targets[choice.peer]
        gateway, region = target.gateway, target.load.region
        hop = Hop(home, region, choice.reason, target.rule)
        if gateway is None:
            # It leaves for another pool of this gateway, whose chain follows it.
            return Elsewhere(request.request_id, hop)
        self._away[request.request_id] = _Known(request, tried, region)
        gateway.forwarded(region, request.keys, now)
        return Elsewhere(request.request_id, hop, gateway.name, now - gateway.heartbeat_s)

    def check(self) -> None:
        """Raise AssertionError if a request both waits here and is away."""
        if self._waiting.keys() & self._away.keys():
            raise AssertionError("a request waits here and is in another region")


def _without_engines(peers: tuple[PeerLoad, ...]) -> RegionChoice:
    """Return the region for a request that no engine here can serve: regions with room first, then the nearest."""
    at = min(
        range(len(peers)),
        key=lambda at: (not peers[at].has_room, -peers[at].matched_tokens, peers[at].one_way_s, at),
    )
    return RegionChoice(reasons.NO_LOCAL_ENGINE, peer=at)
