"""The only door of the routing core: one Router per pool, driven live by the gateway and in virtual
time by the simulator. Synchronous, deterministic and clock-free; it returns what to do and does none
of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from kvstore.prefix_index import PrefixIndex
from kvstore.prefix_match import PrefixMatch
from routing import reasons
from routing.cost_model import PrefillCost
from routing.decision import CENTRAL, Choice, Decision, Granted, Outcome, Queued, Refused
from routing.fleet import NEVER, EngineFacts, EngineLoad, FleetView
from routing.fleet_table import FleetTable
from routing.in_flight import InFlightBlocks
from routing.inference_request import InferenceRequest
from routing.observation import FirstToken, Observation
from routing.policy_document import RoutingPolicy
from routing.registry import build_placement, build_queue_order
from routing.reservations import Reservation, Reservations
from routing.waiting_room import WaitingRoom

UNBOUND_WAIT_S = 10.0
"""How long a request waits for any engine to take work before it is refused."""


class Router:
    """Places, queues, grants and accounts for the requests of one pool.

    Mutable state: the fleet table with its view, the prefix index, blocks in flight, reservations
    and the waiting room. `now` is seconds of the caller's monotonic clock and never goes back.
    """

    def __init__(
        self,
        pool_id: str,
        policy: RoutingPolicy,
        policy_version: int,
        *,
        seed: int = 0,
        index_max_bytes: int = 256 << 20,
    ) -> None:
        self.pool_id = pool_id
        self.index = PrefixIndex(index_max_bytes)
        self.in_flight = InFlightBlocks(self.index)
        self._rng = Random(seed)
        self._cost = PrefillCost.of(policy.prefill_cost)
        self.view = FleetView(self._match, self._cost)
        self.fleet = FleetTable(self.view, self.index)
        self.reservations = Reservations(self.view)
        self.waiting = WaitingRoom()
        self._next_expiry_s = NEVER
        self._adopt(policy, policy_version)

    # -- what the world is like

    def set_engines(self, engines: Sequence[EngineFacts], now: float) -> list[Outcome]:
        """Take `engines` as the whole pool; tickets of engines that take no more work are placed anew."""
        displaced: list[Reservation] = []
        for target in self.fleet.gone(engines):
            displaced += self._empty(target)
        for target in self.fleet.replace(engines):
            self.reservations.open_target(target)
        for facts in engines:
            target = self._target(facts.engine_id)
            if not facts.accepts:
                self.view.ready_at[target] = NEVER
                displaced += [self._withdraw(ticket.request.request_id, now) for ticket in self.waiting.of(target)]
            elif self.view.ready_at[target] == NEVER:
                self.reservations.reopen(target, now)
        displaced.sort(key=lambda each: (each.request.arrived_s, each.request.request_id))
        outcomes = [self._place(each.request, now, hold=True) for each in displaced]
        return [each for each in outcomes if not isinstance(each, Queued)] + self._pump(now)

    def set_policy(self, policy: RoutingPolicy, version: int, now: float) -> list[Outcome]:
        """Route by `policy` from now on; raises PolicyStageError, and changes nothing, if it cannot run."""
        self._adopt(policy, version)
        return self._pump(now)

    def blocks_stored(self, engine_id: str, keys: Sequence[int]) -> None:
        """Note blocks that an engine now holds."""
        target = self.fleet.target_of(engine_id)
        if target is not None:
            self.index.store(target, keys)

    def blocks_removed(self, engine_id: str, keys: Sequence[int]) -> None:
        """Note blocks that an engine no longer holds."""
        target = self.fleet.target_of(engine_id)
        if target is not None:
            self.index.remove(target, keys)

    def blocks_cleared(self, engine_id: str) -> None:
        """Note that an engine holds nothing any more."""
        target = self.fleet.target_of(engine_id)
        if target is not None:
            self.index.clear(target)

    # -- what to do

    def submit(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> Outcome:
        """Decide about one request.

        With `hold` it may wait as a ticket (Queued; Granted or Refused comes from a later call);
        without, an engine is chosen and reserved at once. Engines in `excluded` are not chosen
        unless no other takes work.
        """
        if self.reservations.get(request.request_id) is not None or request.request_id in self.waiting:
            raise ValueError(f"request {request.request_id} is already here; ids are used once")
        if hold and len(self.waiting) >= self.policy.max_tickets:
            return Refused(request.request_id, "queue_full", self._retry_after_s(now))
        return self._place(request, now, hold=hold, excluded=excluded)

    def observe(self, observation: Observation, now: float) -> list[Outcome]:
        """Take note of what happened to a request and return the grants that follow; unknown ids are ignored."""
        request_id = observation.request_id
        if isinstance(observation, FirstToken):
            reservation = self.reservations.first_token(request_id, now)
        else:
            reservation = self._release(request_id, now)
        return self._pump_target(reservation.target, now) if reservation is not None else []

    def tick(self, now: float) -> list[Outcome]:
        """Do what time alone makes due: refuse tickets that waited too long, release expired, grant."""
        outcomes: list[Outcome] = []
        for ticket in self.waiting.older_than(now - self.policy.max_wait_s):
            self._withdraw(ticket.request.request_id, now)
            outcomes.append(Refused(ticket.request.request_id, "wait_expired", self._retry_after_s(now)))
        for ticket in self.waiting.of(CENTRAL):
            if now - ticket.request.arrived_s >= UNBOUND_WAIT_S:
                self._withdraw(ticket.request.request_id, now)
                outcomes.append(Refused(ticket.request.request_id, "no_engine", UNBOUND_WAIT_S))
        if now >= self._next_expiry_s:
            for request_id in self.reservations.expired(now):
                self._release(request_id, now)
            self._next_expiry_s = min((each.expires_s for each in self.reservations), default=NEVER)
        return outcomes + self._pump(now)

    def next_wake(self, now: float) -> float | None:
        """Return the moment at which `tick` has something to do; None while nothing waits."""
        if not self.waiting:
            return max(self._next_expiry_s, now) if self._next_expiry_s != NEVER else None
        moments = [self._next_expiry_s] if self._next_expiry_s != NEVER else []
        oldest = self.waiting.oldest_arrival_s()
        if oldest is not None:
            moments.append(oldest + self.policy.max_wait_s)
        for target in self.waiting.targets():
            if target == CENTRAL:
                moments.append(now + UNBOUND_WAIT_S)
            else:
                moments.append(self.reservations.free_at(target) - self.policy.grant_lookahead_s)
        return max(min(moments), now) if moments else None

    # -- what it is like inside

    def loads(self, now: float) -> list[EngineLoad]:
        """Return the outstanding work of each engine, in the order of their ids."""
        loads = []
        for facts in self.fleet.facts():
            target = self._target(facts.engine_id)
            self.reservations.refresh_overdue(target, now)
            loads.append(
                EngineLoad(
                    facts.engine_id,
                    self.view.outstanding_tokens[target],
                    self.reservations.outstanding_s(target, now),
                    self.reservations.granted(target),
                    self.reservations.waiting(target),
                )
            )
        return loads

    def unbound(self, now: float) -> tuple[int, int, float]:
        """Return number, prompt tokens and longest wait in seconds of the tickets bound to no engine."""
        tickets = self.waiting.of(CENTRAL)
        tokens = sum(each.request.prompt_tokens for each in tickets)
        oldest = max((now - each.request.arrived_s for each in tickets), default=0.0)
        return len(tickets), tokens, oldest

    def check(self) -> None:
        """Raise AssertionError unless all parts agree with each other."""
        self.index.check()
        self.in_flight.check()
        self.reservations.check()
        self.waiting.check()
        if sum(self.reservations.waiting(target) for target in self._targets()) != len(self.waiting) - len(
            self.waiting.of(CENTRAL)
        ):
            raise AssertionError("waiting tickets and waiting reservations differ")

    # -- stages

    def _adopt(self, policy: RoutingPolicy, version: int) -> None:
        placement, order = build_placement(policy.placement), build_queue_order(policy.order)
        self.policy, self.policy_version = policy, version
        self._placement, self._order = placement, order
        self._cost = PrefillCost.of(policy.prefill_cost)
        self.view.set_prefill_cost(self._cost)

    def _match(self, keys: Sequence[int]) -> PrefixMatch:
        return self.in_flight.match(keys, self.view.accepting_mask)

    def _place(
        self, request: InferenceRequest, now: float, *, hold: bool, excluded: frozenset[str] = frozenset()
    ) -> Outcome:
        view = self.view.without(excluded) if excluded else self.view
        if not view.accepting:
            return self._park(request, now, hold=hold)
        choice = self._placement.choose(request, view, now, self._rng)
        self.view.decisions += 1
        target = choice.target
        chosen = choice.candidates[0]
        decision = self._decision(request, choice, now)
        reservation = Reservation(
            request,
            target,
            chosen.compute_s,
            request.prompt_tokens - chosen.hit_tokens,
            NEVER,
            request.keys[chosen.blocks :],
        )
        self.in_flight.add(target, reservation.coming)
        if hold and not self._may_go(reservation, now):
            self.reservations.hold(reservation, now)
            self.waiting.add(target, request, chosen.compute_s, decision)
            return Queued(decision)
        self._reserve(reservation, now)
        return Granted(decision)

    def _may_go(self, reservation: Reservation, now: float) -> bool:
        target = reservation.target
        if self.waiting.has(target):
            return False
        self.reservations.refresh_overdue(target, now)
        return self._fits(target, reservation.uncached_tokens, now)

    def _fits(self, target: int, uncached_tokens: int, now: float) -> bool:
        until = now + self.policy.grant_lookahead_s
        return self.reservations.may_grant(target, uncached_tokens, self.policy.grant_tokens, until)

    def _park(self, request: InferenceRequest, now: float, *, hold: bool) -> Outcome:
        """Keep a request that no engine can take, unbound, until one can."""
        if not hold:
            return Refused(request.request_id, "no_engine", 1.0)
        decision = self._decision(request, Choice(CENTRAL, reasons.NO_ENGINE), now)
        self.waiting.add(CENTRAL, request, 0.0, decision)
        return Queued(decision)

    def _reserve(self, reservation: Reservation, now: float) -> None:
        reservation.expires_s = now + self.policy.reservation_ttl_s
        self._next_expiry_s = min(self._next_expiry_s, reservation.expires_s)
        self.reservations.grant(reservation, now)

    def _pump(self, now: float) -> list[Outcome]:
        """Place unbound tickets if engines take work, then grant on every target with tickets."""
        outcomes: list[Outcome] = []
        if self.view.accepting:
            for ticket in self.waiting.of(CENTRAL):
                self.waiting.remove(ticket.request.request_id)
                outcome = self._place(ticket.request, now, hold=True)
                if not isinstance(outcome, Queued):
                    outcomes.append(_with_wait(outcome, now - ticket.request.arrived_s))
        for target in self.waiting.targets():
            if target != CENTRAL:
                outcomes += self._pump_target(target, now)
        return outcomes

    def _pump_target(self, target: int, now: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        tickets = self.waiting.of(target)
        if not tickets or self.fleet.target_of(self.view.engine_ids[target]) != target:
            return outcomes
        self.reservations.refresh_overdue(target, now)
        while tickets:
            ticket = tickets[self._order.next(target, tickets, self.view, now)]
            reservation = self.reservations.get(ticket.request.request_id)
            if reservation is None or not self._fits(target, reservation.uncached_tokens, now):
                break
            outcomes.append(self._grant_ticket(reservation, now))
            tickets = self.waiting.of(target)
        return outcomes

    def _grant_ticket(self, reservation: Reservation, now: float) -> Granted:
        """Grant with fresh estimates: caches have moved while the ticket waited."""
        request, target = reservation.request, reservation.target
        decision = self.waiting.remove(request.request_id)
        self.in_flight.remove(target, reservation.coming)
        blocks = self.view.match(request).blocks(target)
        reservation.coming = request.keys[blocks:]
        self.in_flight.add(target, reservation.coming)
        hit = self.view.hit_tokens(request, target, blocks)
        compute_s = self.view.compute_s(request, target, hit)
        self.reservations.reestimate(reservation, compute_s, request.prompt_tokens - hit)
        self._reserve(reservation, now)
        return Granted(
            msgspec.structs.replace(decision, hit_tokens=hit, compute_s=compute_s, queued_s=now - request.arrived_s)
        )

    def _release(self, request_id: str, now: float) -> Reservation | None:
        if request_id in self.waiting:
            self.waiting.remove(request_id)
        reservation = self.reservations.release(request_id, now)
        if reservation is not None:
            self.in_flight.remove(reservation.target, reservation.coming)
        return reservation

    def _withdraw(self, request_id: str, now: float) -> Reservation:
        """Take a waiting ticket out and return it with its request."""
        ticket = self.waiting.ticket(request_id)
        reservation = self._release(request_id, now)
        return reservation if reservation is not None else Reservation(ticket.request, CENTRAL, 0.0, 0)

    def _empty(self, target: int) -> list[Reservation]:
        """Release all that stands on a target that is gone and return its waiting tickets."""
        waiting = [self._withdraw(ticket.request.request_id, 0.0) for ticket in self.waiting.of(target)]
        for reservation in self.reservations.close_target(target):
            self.in_flight.remove(target, reservation.coming)
        return waiting

    def _decision(self, request: InferenceRequest, choice: Choice, now: float) -> Decision:
        policy = self.policy
        engine_id, incarnation, hit_tokens, wait_s, compute_s = "", 0, 0, 0.0, 0.0
        if choice.target != CENTRAL:
            best = choice.candidates[0]
            engine_id, hit_tokens, wait_s, compute_s = best.engine_id, best.hit_tokens, best.wait_s, best.compute_s
            incarnation = self.fleet.incarnation(engine_id)
        # By position, in the order of the fields: names cost a quarter of the call here.
        return Decision(
            request.request_id,
            self.pool_id,
            engine_id,
            incarnation,
            policy.placement.name,
            policy.order.name,
            self.policy_version,
            choice.reason,
            request.prompt_tokens,
            hit_tokens,
            wait_s,
            compute_s,
            now,
            0.0,
            choice.candidates,
        )

    def _retry_after_s(self, now: float) -> float:
        """Return when the least loaded engine is expected to be through with what it has."""
        waits = [self.view.wait_s(target, now) for target in self.view.accepting]
        return max(1.0, min(waits, default=UNBOUND_WAIT_S))

    def _targets(self) -> list[int]:
        return [self._target(facts.engine_id) for facts in self.fleet.facts()]

    def _target(self, engine_id: str) -> int:
        target = self.fleet.target_of(engine_id)
        if target is None:
            raise KeyError(engine_id)
        return target


def _with_wait(outcome: Outcome, waited_s: float) -> Outcome:
    if isinstance(outcome, Granted):
        return Granted(msgspec.structs.replace(outcome.decision, queued_s=waited_s))
    return outcome
