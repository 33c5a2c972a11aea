"""Carry out the decisions of placement and queue order: bind, queue, dispatch, and release requests.

One dispatcher per router; the router is its only caller. Synchronous and clock-free.
"""

from __future__ import annotations

from random import Random

import msgspec

from kvstore.index.prefix_index import PrefixIndex
from routing.cost.cost_model import PrefillCost
from routing.dispatch.cold_start import ColdStart
from routing.dispatch.pull_scheduling import Pulling
from routing.dispatch.request_queue import WaitingRoom
from routing.ledger.fleet_table import FleetTable
from routing.ledger.fleet_view import NEVER, FleetCache, FleetView
from routing.ledger.in_flight_blocks import InFlightBlocks, coming_keys
from routing.ledger.prefill_with_loads import Prefill, Prefills
from routing.ledger.reservations import PREFILLING, WAITING, Reservation, Reservations
from routing.ledger.router_counts import RouterCounts
from routing.placements.candidate_scores import candidate
from routing.placements.placement import Placement, TransferringPlacement
from routing.policy.policy_document import RoutingPolicy
from routing.queue.dispatch_limit import DispatchLimit
from routing.queue.target_queue import LineRules
from routing.registry import (
    PolicyStageError,
    Table,
    build_placement,
    build_queue_order,
    pair_problem,
)
from routing.trials.arms import Arms
from routing.trials.decision_observer import DecisionObserver
from routing.values import reasons
from routing.values.decision import CENTRAL, Candidate, Choice, Decision, Dispatched, Outcome, Queued, Rejected
from routing.values.feedback_events import Bound, FeedbackEvent, Released
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch


class Dispatcher:
    """The stages of one pool's router.

    Mutable state: prefix index, blocks in flight, fleet table with its view, reservations, waiting room, the policy
    with its placement and arms, and `next_expiry_s`, the earliest time at which a reservation can expire.
    """

    def __init__(
        self,
        pool_id: str,
        policy: RoutingPolicy,
        policy_version: int,
        *,
        seed: int,
        index_max_bytes: int,
        placements: Table,
    ) -> None:
        self._pool_id = pool_id
        self.rng = Random(seed)
        self.index = PrefixIndex(index_max_bytes)
        self.in_flight = InFlightBlocks(self.index)
        self.view = FleetView(FleetCache(self.in_flight.match, self.index.match), PrefillCost.of(policy.prefill_cost))
        self.fleet = FleetTable(self.view, self.index)
        self.reservations = Reservations(self.view)
        self.dispatch_limit = DispatchLimit(self.reservations)
        self.waiting = WaitingRoom(build_queue_order(policy.order))
        self.pulling = Pulling(
            self.view,
            self.waiting,
            self.reservations,
            self.dispatch_limit,
            self.rng,
            bind=self.bind,
            match_at_dispatch=self.match_at_dispatch,
        )
        self.cold = ColdStart(self.view, self.waiting)
        self.next_expiry_s = NEVER
        self.counts = RouterCounts()
        self.observer: DecisionObserver | None = None
        self._placements = placements
        self.policy, self.arms = policy, Arms(build_placement(policy.placement, placements), placements)
        self.adopt(policy, policy_version)

    def adopt(self, policy: RoutingPolicy, version: int) -> None:
        """Follow this policy. Raise PolicyStageError, without changes, if it cannot run."""
        # An unchanged placement keeps what it has learned.
        same = policy.placement == self.policy.placement
        placement = self.arms.live if same else build_placement(policy.placement, self._placements)
        # All that can fail comes before the first change.
        order = build_queue_order(policy.order)
        if problem := pair_problem(policy.placement.name, policy.order.name, self._placements):
            raise PolicyStageError(problem)
        self.policy, self.policy_version = policy, version
        self._ttl_s = policy.reservation_ttl_s
        self.arms.follow(placement)
        self._names = policy.placement.name, policy.order.name
        self.waiting.reorder(order, LineRules(policy.fairness, policy.starvation_limit_s or NEVER))
        self.dispatch_limit.adopt(policy.dispatch_limit, policy.prefill_window_tokens, policy.lookahead_s)
        self.view.set_prefill_cost(PrefillCost.of(policy.prefill_cost))
        self.view.decode.adopt(policy)

    @property
    def placement(self) -> Placement:
        """The active placement."""
        return self.arms.live

    def accompany(self, observer: DecisionObserver | None) -> None:
        """Pass all later choices and feedback events to an observer, or to none."""
        self.observer = observer
        self.arms.listen(None if observer is None else observer.learn)

    def update(self, event: FeedbackEvent) -> None:
        """Send a feedback event to a learning placement."""
        if self.arms.learn is not None:
            self.arms.learn(event)

    def show(self, request: InferenceRequest, choice: Choice, now: float) -> None:
        """Pass the live policy's choice over the whole fleet to the observer, unless another arm chose."""
        if self.observer is not None and (self.arms.candidate_arms is None or self.arms.of(request) is None):
            self.observer.placed(request, choice, self.view, now)

    def take(
        self,
        request: InferenceRequest,
        choice: Choice,
        now: float,
        hold: bool,
        excluded: frozenset[str] = frozenset(),
    ) -> Outcome:
        """Bind the request to the chosen engine, or leave it unbound. Without `hold` it is never queued."""
        if choice.target != CENTRAL or (not hold and choice.candidates):
            return self.bind(request, choice, now, hold)
        if not hold:
            wait_s = 1.0 if self.cold.expected_s is None else self.cold.left_s(now)
            return Rejected(request.request_id, reasons.NO_ENGINE, wait_s)
        queued = self._enqueue(request, choice, now, excluded)
        return (self.pulling.dispatch(request.request_id, now) if self.waiting.pulls else None) or queued

    def bind(self, request: InferenceRequest, choice: Choice, now: float, hold: bool) -> Outcome:
        """Bind the request to the chosen engine: dispatch it now, or queue it until the engine can accept it."""
        self.view.load.decisions += 1
        candidates = choice.candidates
        if self.view.own is not None or request.adapter:
            candidates = self._with_loading(request, choice)
        chosen = candidates[0]
        target = choice.target
        if target == CENTRAL:
            target = self.fleet.known_target(chosen.engine_id)
        engine_id, hit_tokens, compute_s = chosen.engine_id, chosen.hit_tokens, chosen.compute_s
        prompt_tokens = request.prompt_tokens
        placement, order = self._names
        # By position, in the order of the fields, as below: names cost a quarter of the call here.
        decision = Decision(
            request.request_id,
            self._pool_id,
            engine_id,
            self.fleet.incarnations[target],
            placement,
            order,
            self.policy_version,
            choice.reason,
            prompt_tokens,
            hit_tokens,
            chosen.wait_s,
            compute_s,
            now,
            0.0,
            candidates,
            choice.fetch,
        )
        if self.arms.candidate_arms is not None:
            decision = self.arms.signed(decision, request)
        coming = coming_keys(request.keys, chosen.blocks)
        uncached = prompt_tokens - hit_tokens
        waits = hold and not self._may_go(target, uncached, prompt_tokens, now)
        # Counted before the prefill ends, so that a burst of one prefix follows its first request.
        self.in_flight.add(target, coming)
        learn = self.arms.learn
        if learn is not None:
            learn(Bound(request, engine_id, hit_tokens, now))
        if waits:
            queued = Reservation(request, target, compute_s, uncached, NEVER, coming, loads=choice.loads)
            self.reservations.hold(queued, now)
            self.waiting.add(queued, decision)
            return Queued(decision, choice.loads)
        expires_s = now + self._ttl_s
        dispatched = Reservation(request, target, compute_s, uncached, expires_s, coming, now, PREFILLING)
        self.reservations.begin(dispatched, now)
        self._note_dispatch(target, prompt_tokens, expires_s)
        if request.adapter:
            self.fleet.note_adapters(engine_id, (request.adapter,))
        if choice.fetch is not None and choice.loads is not None:
            holders = choice.loads.holders(engine_id, choice.fetch)
            self._count_load(decision, choice.fetch, chosen.blocks)
            return Dispatched(decision, holders)
        return Dispatched(decision)

    def _with_loading(self, request: InferenceRequest, choice: Choice) -> tuple[Candidate, ...]:
        """Return the candidates including the loads that their engines make. Placements see only their cost."""
        if request.adapter:
            self.fleet.own_loads()
        targets = [(item, self.fleet.target_of(item.engine_id)) for item in choice.candidates]
        return tuple(scored if at is None else self.view.shown(request, scored, at) for scored, at in targets)

    def _may_go(self, target: int, uncached_tokens: int, prompt_tokens: int, now: float) -> bool:
        # A newcomer must not overtake those that wait for the same engine.
        if self.waiting.has(target):
            return False
        self.reservations.refresh_overdue(target, now)
        return self.dispatch_limit.may_dispatch(target, uncached_tokens, prompt_tokens, now)

    def _enqueue(self, request: InferenceRequest, choice: Choice, now: float, excluded: frozenset[str]) -> Outcome:
        """Queue a request unbound until an engine can accept it or the placement binds it."""
        decision = Decision.of(request, choice, now, self._pool_id, 0, self.policy, self.policy_version)
        if self.arms.candidate_arms is not None:
            decision = self.arms.signed(decision, request)
        # An unbound request counts with its best engine, since it may go to any.
        compute_s = min((item.compute_s for item in choice.candidates), default=self.view.unheld_s(request))
        self.waiting.add(Reservation(request, CENTRAL, compute_s, 0, excluded=excluded), decision)
        return Queued(decision)

    def _note_dispatch(self, target: int, prompt_tokens: int, expires_s: float) -> None:
        self.next_expiry_s = expires_s if expires_s < self.next_expiry_s else self.next_expiry_s
        self.reservations.take_room(target, prompt_tokens)

    def pump(self, now: float) -> list[Outcome]:
        """Bind unbound requests if engines accept work, then dispatch on every target with queued requests."""
        outcomes = self.pump_central(now)
        for target in self.waiting.targets():
            if target != CENTRAL:
                outcomes += self.pump_target(target, now)
        return outcomes

    def pump_engine(self, target: int, now: float) -> list[Outcome]:
        """Dispatch the requests that become possible after a change on one target."""
        outcomes = self.pump_target(target, now)
        return outcomes + self.pump_central(now) if self.waiting.has(CENTRAL) else outcomes

    def pump_reported(self, target: int, now: float) -> list[Outcome]:
        """Dispatch the requests that become possible after one target's report."""
        outcomes = self.pump_target(target, now)
        return outcomes + self.pulling.dispatch_on([target], now) if self.waiting.pulls else outcomes

    def pump_central(self, now: float) -> list[Outcome]:
        """Bind unbound requests in arrival order until the placement leaves one unbound."""
        outcomes: list[Outcome] = []
        if self.waiting.pulls:
            return self.pulling.dispatch_all(now) if self.view.roster.accepting else outcomes
        for queued in self.waiting.of(CENTRAL) if self.view.roster.accepting else ():
            request = queued.request
            choice = self.arms.placement_of(request).choose(request, self.view, now, self.rng)
            if choice.target == CENTRAL:
                break
            self.waiting.remove(request.request_id)
            outcome = self.bind(request, choice, now, hold=True)
            if isinstance(outcome, Dispatched):
                waited = msgspec.structs.replace(outcome.decision, queued_s=now - request.arrived_s)
                outcomes.append(msgspec.structs.replace(outcome, decision=waited))
        return outcomes

    def pump_target(self, target: int, now: float) -> list[Outcome]:
        """Dispatch the target's queued requests in queue order while they fit."""
        outcomes: list[Outcome] = []
        waiting = self.waiting
        # The engine may have a new incarnation, whose target is another one.
        if not waiting.has(target) or self.fleet.target_of(self.view.roster.engine_ids[target]) != target:
            return outcomes
        self.reservations.refresh_overdue(target, now)
        # Asked with no tokens first: where nothing fits, the order need not be evaluated.
        while waiting.has(target) and self.dispatch_limit.may_dispatch(target, 0, 0, now):
            pick = waiting.next(target, self.view, self.reservations.starts_at(target, now))
            reservation = self.reservations.get(pick.queued.request.request_id) if pick is not None else None
            if pick is None or reservation is None:
                break
            request = reservation.request
            if not self.dispatch_limit.may_dispatch(target, reservation.uncached_tokens, request.prompt_tokens, now):
                break
            outcomes.append(self._dispatch_queued(reservation, now, pick.reason))
        # Newcomers overtake these requests, whose work must not count as their wait.
        self.reservations.note_late_last(target, waiting.late_last_s(target), now)
        self._expect_no_more(target)
        return outcomes

    def _expect_no_more(self, target: int) -> None:
        """Stop counting the blocks of given-up requests as on their way, because newcomers overtake these requests."""
        for request_id in self.waiting.given_up(target):
            reservation = self.reservations.get(request_id)
            # It may have been dispatched, or moved to another engine, since it was given up.
            if reservation is not None and reservation.phase == WAITING and reservation.target == target:
                self.in_flight.remove(target, reservation.coming)
                reservation.coming = ()

    def _dispatch_queued(self, reservation: Reservation, now: float, queue_reason: str) -> Dispatched:
        """Dispatch with fresh estimates: caches have changed while the request was queued."""
        request, target = reservation.request, reservation.target
        decision, overtook = self.waiting.dispatch(request.request_id, reservation.compute_s, now)
        # First, or the request would count its own blocks on their way as a hit.
        self.in_flight.remove(target, reservation.coming)
        blocks = self.match_at_dispatch(request, target)
        in_memory = blocks if self.view.own is None else self.view.own.in_memory(target, blocks)
        reservation.coming = coming_keys(request.keys, in_memory)
        self.in_flight.add(target, reservation.coming)
        compute_s, hit, fetch = self._prefill_at_dispatch(reservation, decision, blocks, now)
        loads, engine_id = reservation.loads, decision.engine_id
        holders = loads.holders(engine_id, fetch) if loads is not None and fetch is not None else ()
        self.reservations.reestimate(reservation, compute_s, request.prompt_tokens - hit)
        expires_s = reservation.expires_s = now + self._ttl_s
        self.reservations.dispatch(reservation, now)
        self._note_dispatch(target, request.prompt_tokens, expires_s)
        if fetch is not None:
            self._count_load(decision, fetch, blocks)
        if self.view.own is not None:
            decision = decision.with_loading(self.view.loading(request, target, hit))
            if request.adapter:
                self.fleet.note_adapters(engine_id, (request.adapter,))
        fresh = msgspec.structs.replace(
            decision,
            hit_tokens=hit,
            compute_s=compute_s,
            queued_s=now - request.arrived_s,
            fetch=fetch,
            queue_reason=queue_reason,
            overtook=overtook,
        )
        return Dispatched(fresh, holders)

    def _count_load(self, decision: Decision, fetch: Fetch, held: int) -> None:
        """Let later loads wait for this one, which begins after `held` blocks."""
        nodes = self.view.nodes
        if nodes is not None and fetch.node:
            blocks = fetch.blocks - held
            nodes.ordered(decision.decision_id, decision.engine_id, fetch.node, blocks, fetch.ssd_blocks)

    def _prefill_at_dispatch(self, reservation: Reservation, decision: Decision, held: int, now: float) -> Prefill:
        """Return the prefill with the load that pays off now. Node managers can have received blocks meanwhile."""
        request, target, view = reservation.request, reservation.target, self.view
        if reservation.loads is not None:
            reservation.loads = view.load_options(request, now, reservation.loads)
        elif decision.fetch is not None:
            placement = self.arms.placement_of(request)
            if isinstance(placement, TransferringPlacement):
                return placement.prefill_at_dispatch(request, decision, view, target, held)
        return Prefills(request, view, reservation.loads).on(target, held)

    def match_at_dispatch(self, request: InferenceRequest, target: int) -> int:
        """Return the leading blocks that the prefill will hit, without blocks of requests that it overtakes."""
        if self.reservations.prefilling(target):
            return self.view.match(request).blocks(target)
        match, own = self.index.match(request.keys, 1 << target), self.view.own
        return (match if own is None else own.matched(request, match, 1 << target)).blocks(target)

    def move(self, request_id: str, target: int, now: float) -> None:
        """Move a queued request to another target. Raises KeyError if it is not queued."""
        decision = self.waiting.decision(request_id)
        withdrawn, view = self.withdraw(request_id, now), self.view
        request = withdrawn.request
        blocks = view.match(request).blocks(target)
        scored = view.shown(request, candidate(request, view, target, blocks, now), target)
        moved = msgspec.structs.replace(
            decision,
            engine_id=scored.engine_id,
            incarnation=self.fleet.incarnation(scored.engine_id),
            reason=reasons.MIGRATED,
            hit_tokens=scored.hit_tokens,
            wait_s=scored.wait_s,
            compute_s=scored.compute_s,
            candidates=(scored, *(item for item in decision.candidates if item.engine_id != scored.engine_id)),
            fetch=None,
            migrated_s=now,
        )
        uncached = request.prompt_tokens - scored.hit_tokens
        coming = coming_keys(request.keys, scored.blocks)
        reservation = Reservation(request, target, scored.compute_s, uncached, NEVER, coming, loads=withdrawn.loads)
        self.in_flight.add(target, reservation.coming)
        self.update(Bound(request, scored.engine_id, scored.hit_tokens, now))
        self.reservations.hold(reservation, now)
        self.waiting.add(reservation, moved)
        self.counts.migrated += 1

    def load_ended(self, request_id: str) -> None:
        """Stop counting the load of a request that has its first token, or no engine any more."""
        if self.view.nodes is not None:
            self.view.nodes.ended(request_id)

    def release(self, request_id: str, now: float, *, finished: bool = False) -> Reservation | None:
        """Release a queued or dispatched request. Return its reservation, or None if there is none."""
        self.load_ended(request_id)
        waited = request_id in self.waiting
        if waited:
            self.waiting.remove(request_id)
        reservation = self.reservations.release(request_id, now)
        if reservation is not None:
            if waited:
                self.reservations.note_late_last(reservation.target, self.waiting.late_last_s(reservation.target), now)
            self._forget(reservation, now, finished=finished)
        return reservation

    def _forget(self, reservation: Reservation, now: float, *, finished: bool = False) -> None:
        self.in_flight.remove(reservation.target, reservation.coming)
        if self.arms.learn is not None:
            engine_id = self.view.roster.engine_ids[reservation.target]
            self.arms.learn(Released(reservation.request, engine_id, now, finished))

    def withdraw(self, request_id: str, now: float) -> Reservation:
        """Remove a queued request and return its reservation."""
        queued = self.waiting.queued(request_id)
        reservation = self.release(request_id, now)
        return queued if reservation is None else reservation

    def empty(self, target: int, now: float) -> list[Reservation]:
        """Release every reservation on a removed target and return its queued requests."""
        waiting = [self.withdraw(queued.request.request_id, now) for queued in self.waiting.of(target)]
        self.dispatch_limit.forget(target)
        for reservation in self.reservations.close_target(target):
            self._forget(reservation, now)
        return waiting
