"""Rebuilds the fleet's state at each logged decision: the router of the core follows the log over simulated engines.

At each decision the router's view holds what its engines had in cache and in progress. All engines are scored there,
and Headway's default chooses there, too. A second run serves the same requests by the default's own choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import msgspec

from controlplane.router_audit.audited_fleet import AuditedFleet
from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.placements.placement import learning_method
from routing.policy.dispatch_limit_document import BLIND, DispatchLimitDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import Table, build_placement
from routing.trials.shadow import ShadowPolicy
from routing.values.decision import Candidate, Choice
from routing.values.feedback_events import FeedbackEvent
from routing.values.inference_request import InferenceRequest
from simulator.baselines.registry import PLACEMENTS
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.request_record import RequestRecord
from simulator.runs.simulation_run import RunSpec, simulation_of

_FROM_LOG = "from_log"


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuilt fleet assumes about its engines."""

    name: str
    profile: EngineProfile
    engine_model: str
    ttft_slo_s: float = 5.0

    def policy(self) -> RoutingPolicy:
        """Return Headway's default policy with these engines' costs, as a live pool learns them."""
        return RoutingPolicy(
            ttft_slo_s=self.ttft_slo_s,
            prefill_cost=self.profile.prefill_cost,
            decode_cost=self.profile.decode_cost,
            # A late request counts with its time; it must not leave the comparison.
            queue_limit=1_000_000,
            max_wait_s=3600.0,
            reservation_ttl_s=86_400.0,
        )


@dataclass(slots=True)
class DecisionNotes:
    """Observes each decision of a run. Mutable: `choices` and `defaults` grow with each request."""

    default: ShadowPolicy
    choices: dict[str, Choice] = field(default_factory=dict)
    """Request id → the choice; its candidates are all engines, the chosen one first."""
    defaults: dict[str, Candidate] = field(default_factory=dict)
    """Request id → what the default policy would have chosen on the same view."""

    def placed(self, request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> None:
        """Note the choice and the default's."""
        self.choices[request.request_id] = choice
        compared = self.default.compare(request, choice, view, now)
        if compared is not None:
            self.defaults[request.request_id] = compared.shadow

    def learn(self, event: FeedbackEvent) -> None:
        """Pass feedback to the default's placement, if it learns."""
        self.default.learn(event)


@dataclass(frozen=True, slots=True)
class RebuiltRun:
    """A run that followed the log."""

    records: list[RequestRecord]
    """In order of arrival."""
    notes: DecisionNotes


def run_as_logged(fleet: AuditedFleet, assumed: Assumptions, rule: str) -> RebuiltRun:
    """Serve the requests by the log's choices. `rule` places requests whose engine is not logged."""
    policy = msgspec.structs.replace(
        assumed.policy(),
        placement=Stage(name=_FROM_LOG),
        order=Stage(name="fifo"),
        # Other routers send at once; their requests queue at the engines.
        dispatch_limit=DispatchLimitDocument(mode=BLIND),
    )
    table: Table = {**PLACEMENTS, _FROM_LOG: placement_from_log(fleet.chosen, rule)}
    simulation = simulation_of(_spec(fleet, assumed, policy), fleet.workload, placements=table)
    notes = DecisionNotes(ShadowPolicy(assumed.policy(), simulation.router.view))
    simulation.router.accompany(notes)
    simulation.run()
    return RebuiltRun(simulation.history, notes)


def run_by_default(fleet: AuditedFleet, assumed: Assumptions) -> list[RequestRecord]:
    """Serve the requests by Headway's default policy, and return their records in order of arrival."""
    simulation = simulation_of(_spec(fleet, assumed, assumed.policy()), fleet.workload)
    simulation.run()
    return simulation.history


def _spec(fleet: AuditedFleet, assumed: Assumptions, policy: RoutingPolicy) -> RunSpec:
    return RunSpec(
        policy=policy,
        engines=len(fleet.names),
        engine_model=assumed.engine_model,
        profile=assumed.profile,
    )


def placement_from_log(chosen: Mapping[str, str], rule: str) -> type[msgspec.Struct]:
    """Return a placement that follows the log, and a rule for requests that the log assigns to no engine.

    Raises PolicyStageError if the rule is unknown.
    """
    fallback = build_placement(Stage(name=rule), PLACEMENTS)
    learn_fallback = learning_method(fallback)

    class _PlacementFromLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Chooses the logged engine. Its candidates are all engines."""

        def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
            """Return the logged engine, or the rule's, before all others by their expected time."""
            engine_id = chosen.get(request.request_id)
            ids, accepting = view.roster.engine_ids, view.roster.accepting
            target = next((item for item in accepting if ids[item] == engine_id), None)
            if target is None:
                target = fallback.choose(request, view, now, rng).target
            held = view.held(view.match(request))
            scored = {item: candidate(request, view, item, held[item], now) for item in accepting}
            others = sorted((one.cost, one.engine_id, one) for item, one in scored.items() if item != target)
            return Choice(target, _FROM_LOG, (scored[target], *(one for _, _, one in others)))

        def learn(self, event: FeedbackEvent) -> None:
            """Pass feedback to the rule, if it learns."""
            if learn_fallback is not None:
                learn_fallback(event)

    return _PlacementFromLog
