"""DualMap: hash rings select a few candidates by the prompt's prefix, and the SLO decides between them (§3.2).

Its migration of queued requests (§3.3, eq. 6) is a separate stage: routing.dispatch.migration.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

import msgspec

from routing.ledger.fleet_view import FleetView, tie_salt
from routing.placements.candidate_scores import KEPT
from routing.policy.setting import about, fixed, number
from routing.rings.affinity_key import affinity_key
from routing.rings.hash_ring import CandidateRings, CandidateTargets
from routing.rings.prefix_hotness import PrefixHotness
from routing.rings.ring_plan import RingPlan
from routing.values import reasons
from routing.values.decision import Candidate, Choice
from routing.values.feedback_events import Bound, FeedbackEvent
from routing.values.inference_request import InferenceRequest

_MAX_KEY_BLOCKS = 64
_HOTNESS_WINDOW = 1000
"""Requests for which a prefix's share of traffic is known."""


class DualMap(msgspec.Struct, forbid_unknown_fields=True, eq=False, dict=True):
    """Keeps a prefix on two engines: picks the better cached one while its TTFT meets the SLO, else the less loaded."""

    selection: Annotated[Literal["slo", "affinity", "least_loaded", "min_ttft"], fixed()] = "slo"
    """Which candidate wins. slo: the longer match while it meets the TTFT objective. affinity: always the longer match.
    least_loaded: the less loaded. min_ttft: the lowest TTFT.
    """
    d: Annotated[int, fixed(ge=1, le=8)] = 2
    """Engines that each prefix can go to; the paper uses two."""
    # The paper has one anchor per engine, which makes shares differ by an order of magnitude (docs/papers.md).
    virtual_nodes: Annotated[int, fixed(ge=1, le=1000)] = 100
    """Points per engine on each ring; more points distribute keys more evenly."""
    key_blocks: Annotated[
        int,
        about("Key length", "Leading prompt blocks that determine the candidates; the minimum with adaptive keys."),
        number("blocks", ge=1, le=64, usual=(1, 4)),
    ] = 2
    adaptive_key: Annotated[bool, fixed()] = True
    """Lengthens the key below a prefix with more than its share of traffic, so that its requests spread over more
    engines.
    """
    rebalance: Annotated[
        bool,
        about(
            "Migration",
            "Moves queued requests to their other candidate when all candidates of a new request are overloaded.",
        ),
    ] = True

    def __post_init__(self) -> None:
        self._engines = 0
        # Name and bound method are made once, since every decision passes both.
        self._derived_as = f"candidate_rings {self.d} {self.virtual_nodes}"
        self._make = self._build
        self._by_match = self.selection in ("slo", "affinity")
        self._hotness = PrefixHotness(
            window=_HOTNESS_WINDOW, least_blocks=self.key_blocks, max_blocks=max(self.key_blocks, _MAX_KEY_BLOCKS)
        )

    @property
    def learns(self) -> bool:
        """Whether the rule learns from feedback on its choices."""
        return self.adaptive_key

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return one of the request's candidates."""
        length = self._hotness.blocks(request.head or request.keys) if self.adaptive_key else self.key_blocks
        targets, among = view.derived(self._derived_as, self._make)[affinity_key(request, length)]
        groups = view.match_among(request, among).groups
        ids, ready_at, alike = view.roster.engine_ids, view.load.ready_at, view.roster.alike
        scores: list[Candidate] = []
        known, hit, compute = -1, 0, 0.0
        for target in targets:
            blocks = 0
            for depth, holders in groups:
                if holders >> target & 1:
                    blocks = depth
                    break
            # Equal engines with equal matches take equal time, computed once.
            if blocks != known or not alike:
                hit = view.hit_tokens(request, target, blocks)
                compute = view.compute_s(request, target, hit)
                known = blocks
            ready = ready_at[target]
            wait = ready - now if ready > now else 0.0
            scores.append(Candidate(ids[target], hit, wait, compute, wait + compute, blocks))
        if self._by_match and len(targets) == 2:
            at, reason = self._better(request, view, targets, scores)
        else:
            at, reason = self._best(request, view, targets, scores)
        if at:
            scores.insert(0, scores.pop(at))
        return Choice(targets[at], reason, tuple(scores) if len(scores) <= KEPT else tuple(scores[:KEPT]))

    def learn(self, event: FeedbackEvent) -> None:
        """Count a bound request towards the hotness of its prefix."""
        if type(event) is Bound:
            self._hotness.observe(event.request.head or event.request.keys, self._engines)

    def _best(
        self, request: InferenceRequest, view: FleetView, targets: Sequence[int], scores: list[Candidate]
    ) -> tuple[int, str]:
        """Return the position of the winner by the selection rule, and the reason."""
        everyone, selection = range(len(targets)), self.selection
        if len(targets) == 1:
            return 0, reasons.ONLY_ENGINE
        if selection == "min_ttft":
            salt = tie_salt(request)
            return min(everyone, key=lambda at: (scores[at].cost, targets[at] ^ salt)), reasons.LEAST_TTFT
        if selection == "least_loaded":
            return _least_loaded(request, view, targets, everyone), reasons.LEAST_LOADED
        longest, many, holder = -1, 0, 0
        for at, score in enumerate(scores):
            if score.blocks > longest:
                longest, many, holder = score.blocks, 1, at
            elif score.blocks == longest:
                many += 1
        if many == len(targets):
            return _least_loaded(request, view, targets, everyone), reasons.EQUAL_MATCH
        if many > 1:
            holder = _least_loaded(request, view, targets, [at for at in everyone if scores[at].blocks == longest])
        # Affinity only while it meets the objective (§3.2).
        # The authors' code compares pending tokens with a threshold instead (docs/papers.md).
        if scores[holder].cost <= request.ttft_slo_s or selection == "affinity":
            return holder, reasons.LONGEST_MATCH
        return _least_loaded(request, view, targets, everyone), reasons.SLO_SWITCH

    def _better(
        self, request: InferenceRequest, view: FleetView, pair: Sequence[int], scores: list[Candidate]
    ) -> tuple[int, str]:
        """Return the result of `_best` faster, for the usual two candidates."""
        first, second = scores
        reason = reasons.EQUAL_MATCH
        if first.blocks != second.blocks:
            holder = 0 if first.blocks > second.blocks else 1
            if scores[holder].cost <= request.ttft_slo_s or self.selection == "affinity":
                return holder, reasons.LONGEST_MATCH
            reason = reasons.SLO_SWITCH
        one, other = pair
        loads = view.load.in_flight_tokens
        if loads[one] == loads[other]:
            salt = tie_salt(request)
            return (1 if other ^ salt < one ^ salt else 0), reason
        return (1 if loads[other] < loads[one] else 0), reason

    def _build(self, view: FleetView) -> CandidateTargets:
        self._engines = len(view.roster.accepting)
        ids = [view.roster.engine_ids[item] for item in view.roster.accepting]
        rings = {
            d: CandidateRings(ids, rings=d, virtual_nodes=self.virtual_nodes)
            for d in sorted({self.d, *view.roster.widened.values()})
        }
        wider = {key: rings[d] for key, d in view.roster.widened.items() if d > self.d}
        return CandidateTargets(rings[self.d], view.roster.accepting, wider)

    def prefix_of(self, request: InferenceRequest) -> int:
        """Return the key that currently determines a request's candidates."""
        blocks = self._hotness.blocks(request.head or request.keys) if self.adaptive_key else self.key_blocks
        return affinity_key(request, blocks)

    def ring_plan(self) -> RingPlan:
        """Return the plan of its hash rings."""
        return RingPlan(self.d, self.virtual_nodes, True, self.key_blocks, self.adaptive_key)

    def key_length(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of a prompt currently determine its candidates."""
        return self._hotness.peek(keys) if self.adaptive_key else min(self.key_blocks, len(keys))


def _least_loaded(request: InferenceRequest, view: FleetView, targets: Sequence[int], among: Sequence[int]) -> int:
    """Return the position of the target with the fewest pending uncached tokens, ties by the prompt's salt."""
    loads = view.load.in_flight_tokens
    chosen, salt = among[0], -1
    best = loads[targets[chosen]]
    for at in among[1:]:
        load = loads[targets[at]]
        if load == best:
            if salt < 0:
                salt = tie_salt(request)
            if targets[at] ^ salt < targets[chosen] ^ salt:
                chosen = at
        elif load < best:
            best, chosen = load, at
    return chosen
