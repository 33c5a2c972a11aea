"""Entry point of the routing core: one Router per pool.

The gateway drives it live, the simulator in virtual time. It is synchronous, deterministic, and clock-free. It returns
actions and executes none of them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from routing.advisories.advised_routing import AdvisedRouting
from routing.dispatch.dispatcher import Dispatcher
from routing.dispatch.engine_loads import engine_loads, oldest_waits, unbound_work
from routing.dispatch.migration import Migration, late_where_queued
from routing.dispatch.observed_requests import ObservedRequests
from routing.ledger.decode_bottleneck import Bottlenecks
from routing.ledger.fleet_view import NEVER, EngineFacts, EngineLoad, FleetView
from routing.ledger.node_loads import NodeLoads
from routing.ledger.reservations import Reservation
from routing.ledger.router_counts import CountsSeen
from routing.pd.pair_assignment import EnginePairs, has_roles
from routing.policy.policy_document import RoutingPolicy
from routing.queue.admission import Admission, Deferred
from routing.queue.slo_expiry import LastChances
from routing.registry import PLACEMENTS, Table
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice, Decision, Dispatched, Outcome, Queued, Rejected
from routing.values.feedback_events import Answered
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken, HandedOver, Observation

_RECHECK_S = 0.05
"""Delay of the next check of a queued request whose last chance has come, but that has one on another engine."""


class Router:
    """Places, queues, dispatches, and accounts for the requests of one pool.

    Its state is the dispatcher's, whose parts it exposes. `now` is in seconds of the caller's monotonic clock and never
    decreases.
    """

    def __init__(
        self,
        pool_id: str,
        policy: RoutingPolicy,
        policy_version: int,
        *,
        seed: int = 0,
        index_max_bytes: int = 256 << 20,
        placements: Table = PLACEMENTS,
        advised: type[AdvisedRouting] = AdvisedRouting,
    ) -> None:
        self.pool_id = pool_id
        dispatcher = self._dispatcher = Dispatcher(
            pool_id, policy, policy_version, seed=seed, index_max_bytes=index_max_bytes, placements=placements
        )
        self.index, self.in_flight, self.arms = dispatcher.index, dispatcher.in_flight, dispatcher.arms
        self.view, self.fleet = dispatcher.view, dispatcher.fleet
        self.reservations, self.waiting = dispatcher.reservations, dispatcher.waiting
        self.migration, self.observed = Migration(dispatcher), ObservedRequests(dispatcher)
        self.adopt = self.observed.adopt
        self._counts, self.accompany, self.limit = dispatcher.counts, dispatcher.accompany, dispatcher.dispatch_limit
        self.count_outcome = self._counts.answered
        self.admission = Admission(self.view, self.reservations.free_at, self._unbound_wait_s, policy)
        self._bottlenecks = Bottlenecks(self.reservations)
        self.advised = advised(self.view, policy)
        self.advise, self.withdraw = self.advised.advise, self.advised.withdraw
        self.pairs: EnginePairs | None = None
        """The decode side. None until the pool has its first prefill or decode engine."""
        self._legs: Container[str] = ()
        self.deferred, self._last_chances = Deferred(), LastChances()
        self.cold = dispatcher.cold
        # The tables themselves: direct access costs less than a call.
        self._reserved, self._queued = self.reservations.by_id, self.waiting.entries
        self._deferred = self.deferred.requests

    @property
    def policy(self) -> RoutingPolicy:
        """The active policy."""
        return self._dispatcher.policy

    @property
    def policy_version(self) -> int:
        """Version of the active policy."""
        return self._dispatcher.policy_version

    # -- facts from outside

    def set_engines(self, engines: Sequence[EngineFacts], now: float) -> list[Outcome]:
        """Set the whole pool to `engines`. Queued requests of those that stop accepting work are placed again."""
        displaced: list[Reservation] = []
        engines = self._with_roles(engines)
        for target in self.fleet.gone(engines):
            displaced += self._dispatcher.empty(target, now)
            self.admission.book.forget_target(target)
            self.advised.sessions.forget_engine(target)
            self._bottlenecks.forget(target)
        for target in self.fleet.replace(engines):
            self.reservations.open_target(target)
        if self.pairs is not None:
            self.pairs.settle_roles()
        opens, moving = False, list[Reservation]()
        for facts in engines:
            target = self.fleet.known_target(facts.engine_id)
            if not facts.accepts:
                self.view.load.ready_at[target] = NEVER
                moving += self.waiting.of(target)
            elif self.view.load.ready_at[target] == NEVER:
                self.reservations.reopen(target, now)
                opens = True
        moving += late_where_queued(self._dispatcher, now) if opens else []
        displaced += [self._dispatcher.withdraw(queued.request.request_id, now) for queued in moving]
        # In order of arrival, whichever engine each one waited for.
        displaced.sort(key=lambda item: (item.request.arrived_s, item.request.request_id))
        outcomes = [self._choose_again(item.request, now) for item in displaced]
        self._counts.keep(engine.engine_id for engine in engines)
        self.cold.follow(now)
        answered: list[Outcome] = [outcome for outcome in outcomes if not isinstance(outcome, Queued)]
        return self._followed(answered + self._dispatcher.pump(now), now)

    def set_policy(self, policy: RoutingPolicy, version: int, now: float) -> list[Outcome]:
        """Route by `policy`. Raises PolicyStageError, without changes, if it cannot run."""
        self._dispatcher.adopt(policy, version)
        self.admission.adopt(policy)
        self.advised.adopt(policy)
        self._bottlenecks.resume()
        return self._followed(self._dispatcher.pump(now), now)

    def blocks_stored(self, engine_id: str, keys: Sequence[int]) -> None:
        """Record blocks that an engine stored."""
        target = self.fleet.target_of(engine_id)
        if target is not None:
            self.index.store(target, keys)

    def blocks_removed(self, engine_id: str, keys: Sequence[int]) -> None:
        """Record blocks that an engine removed."""
        target = self.fleet.target_of(engine_id)
        if target is not None:
            self.index.remove(target, keys)

    def blocks_cleared(self, engine_id: str) -> None:
        """Record that an engine cleared all its blocks."""
        target = self.fleet.target_of(engine_id)
        if target is not None:
            self.index.clear(target)

    def follow_nodes(self, nodes: NodeLoads | None) -> None:
        """Count on loads from these node managers, or from none."""
        self.view.nodes = nodes

    def note_memory(self, engine_id: str, kv_usage: float) -> None:
        """Record the KV memory usage of an engine, 0..1. Unknown engines and other values are ignored."""
        target = self.fleet.target_of(engine_id)
        if target is not None:
            self._bottlenecks.note_memory(target, kv_usage)

    def report(self, engine_id: str, pending: int, now: float, room_tokens: int | None = None) -> list[Outcome]:
        """Record that `pending` requests have not started on an engine, and its free memory. Return what follows.

        `room_tokens` is None if not reported. Unknown engines are ignored.
        """
        target = self.fleet.target_of(engine_id)
        if target is None:
            return []
        self._dispatcher.dispatch_limit.report(target, max(pending, 0), room_tokens, now)
        if self.pairs is not None:
            self.pairs.legs.report(target, room_tokens)
        return self._followed(self._dispatcher.pump_reported(target, now), now) if self.waiting else []

    # -- decisions

    def place(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> Outcome:
        """Decide about one request, stage by stage. The region is chosen before, because a pool belongs to one region.

        With `hold` the request can be queued (Queued; a later call returns Dispatched or Rejected). Without, an engine
        is chosen and reserved at once. Engines in `excluded` are chosen only if no other accepts work.
        """
        name = request.request_id
        if name in self._reserved or name in self._queued or name in self._deferred or name in self._legs:
            raise ValueError(f"request {name} is already here; ids are used once")
        if hold and self.waiting.is_full(request.tenant_id, self.policy, len(self._deferred)):
            return self._counts.answered(Rejected(name, reasons.QUEUE_FULL, max(1.0, self.least_wait_s(now))))
        outcome = self._decide(request, now, hold, excluded)
        if self.pairs is not None:
            outcome = self.pairs.answered(request, excluded, outcome, now)
        return self._counts.answered(outcome)

    def _decide(
        self, request: InferenceRequest, now: float, hold: bool, excluded: frozenset[str] = frozenset()
    ) -> Outcome:
        """Take a request through the stages. If it is rejected because of load, it can be deferred and retried."""
        if now >= self._bottlenecks.next_check_s:
            self._check_bottlenecks(now)
        view = self.view.without(excluded) if excluded else self.view
        # Locality, estimate, place: the placement matches the prompt's keys, scores candidates and takes the best.
        choice = self._choose(request, view, now)
        # Admit.
        if self.admission.judges and view.roster.accepting:
            rejected = self.admission.judge(request, choice, now)
            if rejected is not None:
                rejected = msgspec.structs.replace(rejected, candidates=choice.candidates)
                return self._defer(request, rejected, now) if hold else rejected
        dispatcher = self._dispatcher
        if dispatcher.observer is not None and view.roster.accepting and not excluded:
            dispatcher.show(request, choice, now)
        # Dispatch, or queue. Most choices name an engine, so that is checked here: one call fewer per decision.
        if choice.target != CENTRAL:
            outcome = dispatcher.bind(request, choice, now, hold)
            if self.advised.sticks:
                self.advised.keep(request, choice.target, now)
        else:
            outcome = dispatcher.take(request, choice, now, hold, excluded)
        if type(outcome) is Queued:
            self._follow_queued(request, outcome.decision, now)
        return outcome

    def _choose(self, request: InferenceRequest, view: FleetView, now: float) -> Choice:
        if not view.roster.accepting:
            self.cold.demand(now)
            return Choice(CENTRAL, reasons.NO_ENGINE)
        arms = self.arms
        placement = arms.live if arms.candidate_arms is None else arms.placement_of(request)
        choice = placement.choose(request, view, now, self._dispatcher.rng)
        if request.session_id and self.advised.sessions:
            return self.advised.arrive(request, choice, view, now)
        return choice

    def _follow_queued(self, request: InferenceRequest, decision: Decision, now: float) -> None:
        """Ensure that a queued request is migrated or rejected in time."""
        if self.arms.live_rebalances or (self.arms.candidate_arms is not None and self.arms.rebalances):
            self.migration.note(decision, request.ttft_slo_s, now)
        self._watch(request, now)

    def _check_bottlenecks(self, now: float) -> None:
        """Delay the queued requests of engines that decodes block, and migrate them if allowed."""
        held_up = self._bottlenecks.update_delays(self.view.roster.accepting, self.policy.bottleneck_s, now)
        if held_up and self.arms.rebalances:
            self.migration.note_held_up(held_up, now)

    def _defer(self, request: InferenceRequest, rejected: Rejected, now: float) -> Outcome:
        """Defer a request that is rejected because of load, if it can still be on time."""
        until = now + self.policy.admission.defer_s
        overloaded = rejected.code in (reasons.PREFILL_OVERLOAD, reasons.DECODE_OVERLOAD)
        if until <= now or not overloaded or until >= min(request.deadline_s, request.give_up_s):
            return rejected
        self.deferred.defer(request, until)
        choice = Choice(CENTRAL, reasons.DEFERRED)
        return Queued(Decision.of(request, choice, now, self.pool_id, 0, self.policy, self.policy_version))

    def _choose_again(self, request: InferenceRequest, now: float) -> Outcome:
        """Choose again for an admitted queued request whose engine stopped accepting work."""
        choice = self._choose(request, self.view, now)
        if self._dispatcher.observer is not None and self.view.roster.accepting:
            self._dispatcher.show(request, choice, now)
        return self._dispatcher.take(request, choice, now, hold=True)

    def _with_roles(self, engines: Sequence[EngineFacts]) -> Sequence[EngineFacts]:
        """Return the engines with `accepts` as placements use it. The first role in the pool opens the decode side."""
        if self.pairs is None:
            if not has_roles(engines):
                return engines
            parts = (self.view, self.fleet, self.reservations, self.admission.book)
            self.pairs = self.admission.pairs = EnginePairs(*parts, self.policy, self._queued, self._deferred)
            self._legs, self.view.decode.elsewhere = self.pairs.legs, True
        return self.pairs.take_engines(engines)

    def _followed(self, outcomes: list[Outcome], now: float) -> list[Outcome]:
        if self.pairs is not None:
            outcomes = [self.pairs.settled(outcome, now) for outcome in outcomes]
        return self._counts.followed(outcomes, now)

    def _hand_over(self, request_id: str, now: float) -> list[Outcome]:
        """End a prefill whose request continues elsewhere, and release its reservation. Unknown ids are ignored."""
        reservation = self.reservations.first_token(request_id, now)
        if reservation is None:
            return []
        self._dispatcher.dispatch_limit.started(reservation.target)
        self._bottlenecks.first_token(reservation.target, now)
        self._dispatcher.update(Answered(reservation.request, self.view.roster.engine_ids[reservation.target], now))
        if self.pairs is not None and request_id in self.pairs.legs:
            self._dispatcher.release(request_id, now, finished=True)
        return self._followed(self._dispatcher.pump_engine(reservation.target, now), now)

    def _watch(self, request: InferenceRequest, now: float, *, not_before: float = 0.0) -> None:
        """Ensure that a queued request is rejected once further waiting is pointless."""
        moment = request.give_up_s
        if self.policy.admission.reject_infeasible:
            chance_s = self.admission.last_chance_s(request, now, self.reservations.get(request.request_id))
            moment = min(moment, max(chance_s, not_before))
        self._last_chances.set(request.request_id, moment)

    def _reject_or_recheck(self, request_id: str, now: float) -> list[Outcome]:
        """Reject a queued request whose time is over; otherwise schedule the next check."""
        if request_id not in self.waiting:
            return []
        request = self.waiting.queued(request_id).request
        code = reasons.DEADLINE_PASSED if now >= request.give_up_s else ""
        if (
            not code
            and self.policy.admission.reject_infeasible
            and self.admission.is_infeasible(request, now, bound=self.reservations.get(request_id))
        ):
            code = reasons.INFEASIBLE
        if not code:
            self._watch(request, now, not_before=now + _RECHECK_S)
            return []
        candidates = self.waiting.decision(request_id).candidates
        self._dispatcher.withdraw(request_id, now)
        return [Rejected(request_id, code, max(1.0, self.least_wait_s(now)), candidates)]

    def _try_again(self, request: InferenceRequest, now: float) -> list[Outcome]:
        """Decide again about a deferred request."""
        outcome = self._decide(request, now, True)
        if isinstance(outcome, Dispatched):
            waited = msgspec.structs.replace(outcome.decision, queued_s=now - request.arrived_s)
            return [msgspec.structs.replace(outcome, decision=waited)]
        return [] if isinstance(outcome, Queued) else [outcome]

    def observe(self, observation: Observation, now: float) -> list[Outcome]:
        """Process an observation of a request and return the dispatches that follow. Unknown ids are ignored."""
        request_id = observation.request_id
        self._dispatcher.load_ended(request_id)
        if isinstance(observation, FirstToken):
            if self.pairs is not None and self.pairs.begin(request_id, now):
                return self._hand_over(request_id, now)
            reservation = self.reservations.first_token(request_id, now)
            if reservation is not None:
                self._dispatcher.dispatch_limit.started(reservation.target)
                self._bottlenecks.first_token(reservation.target, now)
                request = reservation.request
                self.admission.book.begin(request_id, reservation.target, request.prompt_tokens, now, request.sequences)
                self._dispatcher.update(Answered(request, self.view.roster.engine_ids[reservation.target], now))
        elif isinstance(observation, HandedOver):
            return self._hand_over(request_id, now)
        else:
            finished = isinstance(observation, Completed)
            reservation = self._dispatcher.release(request_id, now, finished=finished)
            self.admission.book.end(request_id, now, finished=finished)
            self._last_chances.forget(request_id)
            self.deferred.drop(request_id)
            if self.pairs is not None:
                self.pairs.end(request_id)
        if reservation is None:
            return []
        outcomes = self._dispatcher.pump_engine(reservation.target, now)
        return self._followed(outcomes, now) if outcomes else outcomes

    def tick(self, now: float) -> list[Outcome]:
        """Do the work that is due: reject requests that waited too long, release expired ones, dispatch."""
        self._check_bottlenecks(now)
        outcomes: list[Outcome] = []
        for queued in self.waiting.older_than(now - self.policy.max_wait_s):
            self._dispatcher.withdraw(queued.request.request_id, now)
            outcomes.append(Rejected(queued.request.request_id, reasons.WAIT_EXPIRED, max(1.0, self.least_wait_s(now))))
        limit_s = self.cold.limit_s(self.policy.max_wait_s)
        for queued in self.waiting.of(CENTRAL) if not self.view.roster.accepting else ():
            if now - queued.request.arrived_s >= limit_s:
                self._dispatcher.withdraw(queued.request.request_id, now)
                outcomes.append(Rejected(queued.request.request_id, reasons.NO_ENGINE, self.cold.left_s(now)))
        self.cold.follow(now)
        for request_id in self._last_chances.due(now):
            outcomes += self._reject_or_recheck(request_id, now)
        for request in self.deferred.due(now):
            outcomes += self._try_again(request, now)
        if now >= self._dispatcher.next_expiry_s:
            for request_id in self.reservations.expired(now):
                self._dispatcher.release(request_id, now)
                self.admission.book.end(request_id, now, finished=False)
            self._dispatcher.next_expiry_s = min((item.expires_s for item in self.reservations), default=NEVER)
            if self.pairs is not None:
                self._dispatcher.next_expiry_s = min(self._dispatcher.next_expiry_s, self.pairs.expire(now))
        outcomes += self.migration.relieve(now)
        return self._followed(outcomes + self._dispatcher.pump(now), now)

    def next_wake(self, now: float) -> float | None:
        """Return the next time at which `tick` has work, None if no request waits."""
        if not self.waiting and not self.deferred:
            return max(self._dispatcher.next_expiry_s, now) if self._dispatcher.next_expiry_s != NEVER else None
        if self.migration.due:
            return now
        kept = (self._dispatcher.next_expiry_s, self._last_chances.next_moment(), self.deferred.next_moment())
        moments = [item for item in (*kept, self._bottlenecks.next_check_s) if item != NEVER]
        oldest = self.waiting.oldest_arrival_s()
        if oldest is not None:
            moments.append(oldest + self.policy.max_wait_s)
        for target in self.waiting.targets():
            if target == CENTRAL:
                since_s = now if self.view.roster.accepting else self.waiting.first(CENTRAL).request.arrived_s
                moments.append(since_s + self.cold.limit_s(self.policy.max_wait_s))
                if self.waiting.pulls:
                    moments += self._dispatcher.pulling.moments(now)
            else:
                moments.append(self._dispatcher.dispatch_limit.opens_at(target, now))
        return max(min(moments), now) if moments else None

    # -- readings

    @property
    def counts(self) -> CountsSeen:
        """Counts of requests' outcomes since the router started."""
        return self._counts.seen()

    def oldest_waits(self, now: float) -> dict[str, float]:
        """Return, for each engine with queued requests, how many seconds the oldest has waited."""
        return oldest_waits(self.view, self.waiting, now)

    def loads(self, now: float) -> list[EngineLoad]:
        """Return the in-flight work of each engine, in the order of their ids."""
        parts = (self.fleet, self.view, self.reservations, self._dispatcher.dispatch_limit)
        return engine_loads(*parts, self.pairs, now)

    def unbound(self, now: float) -> tuple[int, int, float]:
        """Return the number, prompt tokens, and longest wait in seconds of the unbound queued requests."""
        return unbound_work(self.waiting, now)

    def check(self) -> None:
        """Raise AssertionError if any parts disagree."""
        parts = (self.index, self.in_flight, self.reservations, self.waiting, self.limit)
        own = (self.admission.book, self.deferred, self._last_chances, self.pairs)
        for part in (*parts, *own, self.view.load.ready_order, self.view.nodes):
            if part is not None:
                part.check()
        self._counts.check(len(self.waiting))
        self.arms.check()
        if sum(self.reservations.waiting(target) for target in self._targets()) != len(self.waiting) - len(
            self.waiting.of(CENTRAL)
        ):
            raise AssertionError("queued requests and waiting reservations differ")

    def least_wait_s(self, now: float) -> float:
        """Return the seconds until the least loaded engine is expected to finish its work."""
        waits = [self.view.wait_s(target, now) for target in self.view.roster.accepting]
        ahead_s = self._dispatcher.pulling.ahead_s() if self.waiting.pulls else 0.0
        return min(waits, default=self.cold.left_s(now)) + ahead_s

    def _unbound_wait_s(self) -> float:
        """Return how many seconds the unbound requests ahead delay a newcomer."""
        if self.waiting.pulls:
            return self._dispatcher.pulling.ahead_s()
        tokens = self.unbound(0.0)[1]
        speed = sum(self.view.roster.speeds[target] for target in self.view.roster.accepting)
        return self.admission.tokens_s(tokens) / speed if speed else 0.0

    def _targets(self) -> list[int]:
        return [self.fleet.known_target(facts.engine_id) for facts in self.fleet.facts()]
