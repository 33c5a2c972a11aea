"""Another policy's choice for a request, on the same view at the same time, without executing it.

Each comparison is independent: engines, loads, and caches result from the live policy. A what-if simulation, not a
shadow, shows how a policy performs on a fleet that follows its own choices.
"""

from __future__ import annotations

from random import Random

import msgspec

from routing.cost.cost_model import PrefillCost
from routing.ledger.decode_ledger import DecodePrice
from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.placements.placement import learning_method
from routing.policy.policy_document import RoutingPolicy
from routing.registry import CENTRAL_PLACEMENT, build_placement
from routing.values.decision import CENTRAL, Candidate, Choice
from routing.values.feedback_events import FeedbackEvent
from routing.values.inference_request import InferenceRequest

_COMPARED = frozenset({"schema_version", "placement", "prefill_cost", "decode_weight"})
"""Parts of a policy that a single choice fully reflects."""


class ShadowComparison(msgspec.Struct, frozen=True, gc=False):
    """Two choices for one request, both scored by the live cost model. A candidate's cost is its TTFT in seconds."""

    request_id: str
    prompt_tokens: int
    live: Candidate
    live_reason: str
    shadow: Candidate
    shadow_reason: str

    @property
    def agreed(self) -> bool:
        """Whether both chose the same engine."""
        return self.live.engine_id == self.shadow.engine_id

    @property
    def gain_s(self) -> float:
        """Expected seconds that the shadow's choice answers sooner. Negative means later."""
        return self.live.cost - self.shadow.cost

    @property
    def gain_hit_tokens(self) -> int:
        """Expected cached prompt tokens of the shadow's choice, minus those of the live choice."""
        return self.shadow.hit_tokens - self.live.hit_tokens


class ShadowPolicy:
    """A policy's placement next to a live router.

    Mutable state: the placement's learned state, its random generator, and its own view, which borrows the live view's
    facts for one choice at a time. Raises PolicyStageError for a policy that cannot run.
    """

    def __init__(self, policy: RoutingPolicy, view: FleetView, *, seed: int = 0) -> None:
        self._placement = build_placement(policy.placement)
        self._learn = learning_method(self._placement)
        # A draw from the live generator would change the live choices.
        self._rng = Random(seed)
        self._view = view.twin(PrefillCost.of(policy.prefill_cost))
        self._decode = DecodePrice()
        self._decode.adopt(policy)
        self._by_written_costs = policy.cost == "fixed"

    def compare(self, request: InferenceRequest, live: Choice, view: FleetView, now: float) -> ShadowComparison | None:
        """Return both choices, None if either binds the request to no engine.

        `view` is the unchanged view on which `live` was chosen.
        """
        if live.target == CENTRAL:
            return None
        own = self._view
        own.follow(view)
        self._decode.answer_s, self._decode.elsewhere = view.decode.answer_s, view.decode.elsewhere
        # Learned figures are facts of the pool; only the weights are the draft's.
        own.decode = self._decode
        if self._by_written_costs and (any(view.roster.costs) or any(view.roster.decode_costs)):
            # Learned costs take precedence over written ones, by which this policy chooses.
            own.roster.costs = [None] * len(view.roster.costs)
            own.roster.decode_costs = [None] * len(view.roster.costs)
        choice = self._placement.choose(request, own, now, self._rng)
        if choice.target == CENTRAL:
            return None
        return ShadowComparison(
            request.request_id,
            request.prompt_tokens,
            judged(request, live, view, now),
            live.reason,
            judged(request, choice, view, now),
            choice.reason,
        )

    def learn(self, event: FeedbackEvent) -> None:
        """Send the feedback on actual choices to a learning placement, because its own choices were not executed."""
        if self._learn is not None:
            self._learn(event)


def judged(request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> Candidate:
    """Return the chosen engine scored by the view's own costs, including the choice's planned fetch."""
    if choice.fetch is None:
        return candidate(request, view, choice.target, view.match(request).blocks(choice.target), now)
    scored = candidate(request, view, choice.target, choice.fetch.blocks, now)
    # What a node or another engine sends is known exactly, whatever the trust in the engine's own index.
    hit_tokens = min(choice.fetch.blocks * request.block_tokens, request.prompt_tokens)
    compute_s = view.compute_s(request, choice.target, hit_tokens) + choice.fetch.seconds
    return msgspec.structs.replace(scored, hit_tokens=hit_tokens, compute_s=compute_s, cost=scored.wait_s + compute_s)


def uncompared_parts(live: RoutingPolicy, other: RoutingPolicy) -> tuple[str, ...]:
    """Return the fields in which the policies differ but that single choices do not reflect."""
    different = (name for name in live.__struct_fields__ if getattr(live, name) != getattr(other, name))
    # Written costs can replace learned ones, but nothing can replace those that the live policy does not use.
    shown = _COMPARED | {"cost"} if other.cost == "fixed" else _COMPARED
    return tuple(name for name in different if name not in shown)


def shadow_problem(live: RoutingPolicy | None, other: RoutingPolicy) -> str:
    """Return why the policies cannot be compared choice by choice, in one sentence. "" if they can.

    `live` is None if another proxy chooses, whose choices are then compared.
    """
    for name, policy in (("live policy", live), ("draft", other)):
        if policy is not None and policy.placement.name == CENTRAL_PLACEMENT:
            return f"The {name} lets engines pull requests instead of choosing an engine per request; run a what-if."
    if live is None:
        return ""
    if all(getattr(live, name) == getattr(other, name) for name in _COMPARED):
        different = ", ".join(uncompared_parts(live, other)) or "nothing"
        return (
            f"Both place requests by the same rule and costs (different: {different}), so they would always agree; "
            "run a what-if."
        )
    return ""
