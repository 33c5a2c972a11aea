"""Assign a decode engine to each request with a prefill engine, and account for the second leg.

The router creates it when the first prefill or decode engine joins. The decode engine is chosen at dispatch, when the
prefill begins, because loads are known best then. Admission evaluates the same figures earlier (Mooncake Alg. 1, lines
17 to 19).
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from math import exp

import msgspec
from xxhash import xxh3_64_intdigest

from routing.cost.cost_model import DecodeCost
from routing.ledger.decode_ledger import DecodeBook
from routing.ledger.fleet_table import FleetTable
from routing.ledger.fleet_view import NEVER, EngineFacts, FleetView, tie_salt
from routing.ledger.reservations import Reservations
from routing.pd.decode_choice import DecodeLoad, choose_decoder, need_tokens, scored
from routing.pd.decode_legs import DecodeLeg, DecodeLegs
from routing.policy.admission_document import EARLY, PREDICTIVE_SYSTEM
from routing.policy.policy_document import RoutingPolicy
from routing.values.decision import Dispatched, Outcome, Rejected
from routing.values.engine_pair import DECODE, MIXED, PREFILL, EnginePair
from routing.values.inference_request import InferenceRequest


def has_roles(engines: Sequence[EngineFacts]) -> bool:
    """Return whether any engine does only prefill or only decode."""
    return any(engine.role != MIXED for engine in engines)


def placeable(engines: Sequence[EngineFacts]) -> list[EngineFacts]:
    """Return the engines with `accepts` as placements use it.

    Decode engines accept no new request, and prefill engines accept one only while a decode engine is available.
    """
    decoders = any(engine.role == DECODE and engine.accepts for engine in engines)
    return [
        engine
        if engine.role == MIXED or not engine.accepts or (engine.role == PREFILL and decoders)
        else msgspec.structs.replace(engine, accepts=False)
        for engine in engines
    ]


class EnginePairs:
    """The decode side of one pool. `waiting` are the tables of requests that wait at the gateway.

    Mutable state: the legs, the decode engines that accept work, the roles by target, and the decode engines excluded
    for waiting requests, because they failed there.
    """

    def __init__(
        self,
        view: FleetView,
        fleet: FleetTable,
        reservations: Reservations,
        book: DecodeBook,
        policy: RoutingPolicy,
        *waiting: Sized,
    ) -> None:
        self.legs = DecodeLegs()
        self._view, self._fleet, self._reservations, self._book = view, fleet, reservations, book
        self._waiting = waiting
        self.adopt(policy)
        self._decoders: tuple[int, ...] = ()
        self._prefillers: frozenset[int] = frozenset()
        self.alone: frozenset[int] = frozenset()
        """Mixed engines, which decode the requests that they prefill."""
        self._engines: tuple[EngineFacts, ...] = ()
        self._excluded: dict[str, frozenset[str]] = {}

    def adopt(self, policy: RoutingPolicy) -> None:
        """Follow this policy's expectations."""
        self._admission, self._decode_cost = policy.admission, DecodeCost.of(policy.decode_cost)

    def take_engines(self, engines: Sequence[EngineFacts]) -> list[EngineFacts]:
        """Set the pool's engines and return them with `accepts` as placements use it. Call `settle_roles` afterwards.

        Reservations on removed engines are released.
        """
        for target in self._fleet.gone(engines):
            self.legs.close_target(target)
        self._engines = tuple(engines)
        return placeable(engines)

    def settle_roles(self) -> None:
        """Apply the roles of the engines, once the fleet table has their targets."""
        engines, target_of = self._engines, self._fleet.known_target
        for engine in engines:
            if engine.role == DECODE:
                self.legs.open_target(target_of(engine.engine_id))
        decoders = sorted(engine.engine_id for engine in engines if engine.role == DECODE and engine.accepts)
        self._decoders = tuple(target_of(engine_id) for engine_id in decoders)
        self._prefillers = frozenset(target_of(engine.engine_id) for engine in engines if engine.role == PREFILL)
        self.alone = frozenset(target_of(engine.engine_id) for engine in engines if engine.role == MIXED)

    def answered(self, request: InferenceRequest, excluded: frozenset[str], outcome: Outcome, now: float) -> Outcome:
        """Return a new request's outcome. A dispatch includes its decode engine.

        Excluded engines are used only if there are no others, even after a wait.
        """
        if excluded:
            self._excluded[request.request_id] = excluded
        return self.settled(outcome, now)

    def settled(self, outcome: Outcome, now: float) -> Outcome:
        """Return the outcome. A dispatch includes its decode engine; a rejected request leaves no state."""
        if isinstance(outcome, Dispatched):
            return self.paired(outcome, now)
        if isinstance(outcome, Rejected):
            self._excluded.pop(outcome.request_id, None)
        return outcome

    def paired(self, dispatched: Dispatched, now: float) -> Dispatched:
        """Return the dispatch with its decode engine, and count its leg. A mixed engine's dispatch is unchanged."""
        decision = dispatched.decision
        request_id = decision.decision_id
        excluded = self._excluded.pop(request_id, frozenset())
        reservation = self._reservations.get(request_id)
        if reservation is None or reservation.target not in self._prefillers or not self._decoders:
            return dispatched
        request = reservation.request
        choice = choose_decoder(
            # As of now, so that answers promised to an engine count although their prefill runs elsewhere.
            self._decode_loads(excluded, now, now),
            request.prompt_tokens,
            _need(request),
            tie_salt(request),
        )
        best = choice.candidates[0]
        incarnation = self._fleet.incarnation(best.engine_id)
        leg = DecodeLeg(
            choice.target, request.prompt_tokens, _need(request), reservation.expires_s, sequences=request.sequences
        )
        self.legs.promise(request_id, leg)
        # No two attempts share an id, which therefore needs neither clock, counter, nor random number.
        named = (request_id, decision.engine_id, decision.incarnation, best.engine_id, incarnation, now)
        pair = EnginePair(
            # A positive 63-bit number, as EnginePair.pairing_id requires.
            str(xxh3_64_intdigest(repr(named).encode()) >> 1 or 1),
            best.engine_id,
            incarnation,
            choice.reason,
            best.tpot_s,
            leg.need_tokens,
            choice.candidates,
        )
        return msgspec.structs.replace(dispatched, decision=msgspec.structs.replace(decision, pair=pair))

    @property
    def decoders(self) -> tuple[int, ...]:
        """Targets of the accepting decode engines."""
        return self._decoders

    def begin(self, request_id: str, now: float) -> bool:
        """Record the first token of a request on its decode engine. Return False if it has none."""
        leg = self.legs.begin(request_id)
        if leg is not None:
            self._book.begin(request_id, leg.target, leg.prompt_tokens, now, leg.sequences)
        return request_id in self.legs

    def end(self, request_id: str) -> None:
        """Release everything that a request holds. Unknown ids are ignored."""
        self._excluded.pop(request_id, None)
        self.legs.release(request_id)

    def expire(self, now: float) -> float:
        """Release legs past their expiry and return when the next one expires."""
        for request_id in self.legs.expired(now):
            self._book.end(request_id, now, finished=False)
            self.end(request_id)
        return min((leg.expires_s for leg in self.legs), default=NEVER)

    def overload_s(self, request: InferenceRequest, now: float, at_s: float, limit_s: float) -> float | None:
        """Return the retry delay in seconds if no decode engine could accept the request in time, else None.

        An engine accepts it if it has the memory and stays within `limit_s` per token. `early` admission uses the
        current load. The predictive modes use the load at `at_s`, when the prefill ends: current prefills and waiting
        requests are added, and decodes are removed once they have run for the policy's t_d (Mooncake §4.3.4). Beyond
        the paper, if t_d is not set, decodes end at their recent rate.
        """
        settings = self._admission
        loads = self._decode_loads(frozenset(), now, None if settings.mode == EARLY else max(now, at_s))
        if not loads:
            return None
        candidates = [scored(load, request.prompt_tokens, _need(request)) for load in loads]
        fitting = [candidate.tpot_s for candidate in candidates if candidate.fits]
        if settings.mode == PREDICTIVE_SYSTEM:
            fitting = [sum(candidate.tpot_s for candidate in candidates) / len(candidates)] if fitting else []
        if fitting and min(fitting) <= limit_s:
            return None
        mean_s = settings.decode_s or self._book.decode_s
        # With a batch of n, decodes end every mean/n seconds.
        return mean_s / max(1.0, min(load.batch for load in loads))

    def check(self) -> None:
        """Raise AssertionError unless legs and their sums agree, and exclusions belong to waiting requests."""
        self.legs.check()
        if len(self._excluded) > self._queued():
            raise AssertionError("an exclusion outlived its request")

    def _queued(self) -> int:
        """Return the number of requests that wait at the gateway."""
        return sum(map(len, self._waiting))

    def _decode_loads(self, excluded: frozenset[str], now: float, at_s: float | None) -> list[DecodeLoad]:
        """Return the loads of accepting decode engines at `at_s`, or their current loads if it is None."""
        names = self._view.roster.engine_ids
        # Excluded engines serve only where no other is left.
        targets = [decoder for decoder in self._decoders if names[decoder] not in excluded] or self._decoders
        return [self._decode_load(target, now, at_s, len(targets)) for target in targets]

    def _decode_load(self, target: int, now: float, at_s: float | None, decoders: int) -> DecodeLoad:
        legs = self.legs
        batch: float = legs.decoding(target) + (legs.promised(target) if at_s is not None else 0)
        context: float = legs.context_tokens(target) * (batch / (legs.answers(target) or 1))
        if at_s is not None and at_s > now:
            own, coming = self._expected(target, now, at_s, decoders)
            context = context * own / (batch or 1) + coming * self._book.context_tokens
            batch = own + coming
        cost = self._view.roster.decode_costs[target] or self._decode_cost
        return DecodeLoad(target, self._view.roster.engine_ids[target], batch, context, legs.room_tokens(target), cost)

    def _expected(self, target: int, now: float, at_s: float, decoders: int) -> tuple[float, float]:
        """Return how many of a target's legs, and how many waiting requests, will decode there at `at_s`."""
        legs, ahead_s, uniform_s = self.legs, at_s - now, self._admission.decode_s
        # Waiting requests are expected to spread evenly over the decode engines.
        waiting = self._queued() / decoders
        if uniform_s:
            share = self._still_decoding(now, ahead_s, uniform_s)
            staying = self._book.decoding_after(target, at_s - uniform_s)
            return staying + share * legs.promised(target), share * waiting
        # Decodes end at the rate 1/mean, whatever their age, as in routing.queue.admission; the mean may be 0.
        kept = exp(-ahead_s / max(self._book.decode_s, 1e-3))
        return legs.decoding(target) * kept + legs.promised(target), waiting

    def _still_decoding(self, now: float, ahead_s: float, uniform_s: float) -> float:
        """Return the share of coming prefills whose decode will still run after `ahead_s`.

        Their prefills must end within that time, and less than `uniform_s` before its end. Each prefill engine's
        prefills are expected to end evenly until it is ready.
        """
        pending, counted, over_s = 0, 0.0, max(0.0, ahead_s - uniform_s)
        for target in sorted(self._prefillers):
            ready_s = self._view.load.ready_at[target] - now
            if ready_s == NEVER:
                continue
            here = self._view.load.pending_requests[target]
            late_s = min(ready_s, ahead_s) - over_s
            counted += here * (max(0.0, late_s) / ready_s if ready_s > 0 else float(over_s == 0.0))
            pending += here
        return counted / pending if pending else float(over_s == 0.0)


def _need(request: InferenceRequest) -> int:
    return need_tokens(request.prompt_tokens, request.max_output_tokens, request.sequences)
