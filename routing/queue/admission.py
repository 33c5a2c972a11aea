"""Reject a request on arrival if the fleet cannot serve it within its objectives (Mooncake §4.3).

The load of a stage is an expected time divided by its objective: for prefill, the expected TTFT on the chosen engine
over the TTFT objective; for decode, the time of a decode step over the TBT objective. A request is rejected before its
prefill if either exceeds the policy's threshold.

`early` (§4.3.2) uses the current decode load. That load lags behind the running prefills, so the two oscillate in
antiphase (§4.3.3). `predictive_system` (§4.3.4) uses the load at the time t when the request's own decode begins:
prefills that end before t are added, decodes that have then run for the uniform time t_d are subtracted, and the mean
over the pool counts. `predictive_instance` does the same for the chosen engine only. Beyond the paper, if t_d is not
set, decodes are subtracted at the rate at which they have recently ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import exp
from typing import TYPE_CHECKING

from kvstore.index.prefix_match import PrefixMatch
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.ledger.decode_ledger import DecodeBook
from routing.ledger.fleet_view import NEVER, FleetView
from routing.ledger.prefill_with_loads import Prefills
from routing.ledger.reservations import Reservation
from routing.policy.admission_document import EARLY, OFF, PREDICTIVE_INSTANCE, AdmissionDocument
from routing.policy.policy_document import RoutingPolicy
from routing.queue.slo_expiry import LastChances
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import LoadOptions


class Deferred:
    """Deferred requests and their retry times. Mutable state: the requests by id, and their times."""

    def __init__(self) -> None:
        self.requests: dict[str, InferenceRequest] = {}
        """Requests by id. Only this class changes it."""
        self._moments = LastChances()

    def __len__(self) -> int:
        return len(self.requests)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.requests

    def defer(self, request: InferenceRequest, until: float) -> None:
        """Keep a request until this time."""
        self.requests[request.request_id] = request
        self._moments.set(request.request_id, until)

    def drop(self, request_id: str) -> bool:
        """Drop a request that is no longer wanted. Return False if it is not deferred."""
        self._moments.forget(request_id)
        return self.requests.pop(request_id, None) is not None

    def next_moment(self) -> float:
        """Return when the next request is due, NEVER if there is none."""
        return self._moments.next_moment()

    def due(self, now: float) -> Iterator[InferenceRequest]:
        """Yield the requests to retry now, and drop them."""
        # A list, because a request that is tried again may be deferred again meanwhile.
        for request_id in list(self._moments.due(now)):
            yield self.requests.pop(request_id)

    def check(self) -> None:
        """Raise AssertionError unless every deferred request will be retried."""
        self._moments.check()
        if len(self._moments) != len(self.requests):
            raise AssertionError("a deferred request is forgotten")


if TYPE_CHECKING:
    from routing.pd.pair_assignment import EnginePairs

_LEAST_RETRY_S = 1.0


class Admission:
    """Admits or rejects requests after placement. Mutable state: the policy's settings and the book of decodes.

    `free_at` returns when the running prefills on a target are expected to end, without queued requests. `unbound_s`
    returns the seconds that a request waits for the unbound requests ahead of it.
    """

    def __init__(
        self,
        view: FleetView,
        free_at: Callable[[int], float],
        unbound_s: Callable[[], float],
        policy: RoutingPolicy,
    ) -> None:
        self._view = view
        self._free_at = free_at
        self._unbound_s = unbound_s
        self.book = DecodeBook(view.decode)
        self.pairs: EnginePairs | None = None
        """The decode side of a pool with roles."""
        self.adopt(policy)

    def adopt(self, policy: RoutingPolicy) -> None:
        """Follow this policy."""
        self.settings: AdmissionDocument = policy.admission
        self._tpot_slo_s = policy.tpot_slo_s
        self._decode_cost = DecodeCost.of(policy.decode_cost)
        self._token_s = 1.0 / PrefillCost.of(policy.prefill_cost).tokens_per_s()
        if self.pairs is not None:
            self.pairs.adopt(policy)
        self.judges = policy.admission.mode != OFF or policy.admission.reject_infeasible

    def judge(self, request: InferenceRequest, choice: Choice, now: float) -> Rejected | None:
        """Return the rejection of a request for which this engine was chosen, None to admit it."""
        ttft_s = self.expected_ttft_s(request, choice, now)
        left_s = request.deadline_s - now
        # All engines are compared only where the chosen one would be late.
        if self.settings.reject_infeasible and ttft_s > left_s and self.is_infeasible(request, now, choice.loads):
            return Rejected(request.request_id, reasons.INFEASIBLE, max(_LEAST_RETRY_S, ttft_s - left_s))
        if self.settings.mode == OFF:
            return None
        spare_s = self.settings.threshold * request.ttft_slo_s - (now - request.arrived_s) - ttft_s
        if spare_s < 0:
            return Rejected(request.request_id, reasons.PREFILL_OVERLOAD, max(_LEAST_RETRY_S, -spare_s))
        return self._judge_decode(request, choice, now, now + ttft_s)

    def expected_ttft_s(self, request: InferenceRequest, choice: Choice, now: float) -> float:
        """Return the seconds from now to the first token: on the chosen engine, or on the best one while unbound."""
        if choice.target != CENTRAL:
            best = choice.candidates[0]
            return best.wait_s + best.compute_s
        return self._unbound_s() + self._least(request, now, choice.loads)[0]

    def is_infeasible(
        self,
        request: InferenceRequest,
        now: float,
        loads: LoadOptions | None = None,
        bound: Reservation | None = None,
    ) -> bool:
        """Return whether no engine could serve the request on time even if it went next.

        A prompt whose prefill alone takes longer than its objective is not infeasible: it would always be rejected,
        because no wait makes it shorter. `bound` is given for a queued request, `loads` for a new one.
        """
        ttft_s, compute_s = self._least(request, now, loads, bound)
        return now + ttft_s > request.deadline_s and compute_s <= request.ttft_slo_s

    def last_chance_s(self, request: InferenceRequest, now: float, bound: Reservation | None) -> float:
        """Return the latest time at which the request's prefill can start on the best engine and still be on time."""
        compute_s = self._least(request, now, None, bound)[1]
        return request.deadline_s - compute_s if compute_s <= request.ttft_slo_s else NEVER

    def decode_load(self, target: int | None, now: float, *, at_s: float | None = None) -> float:
        """Return a decode step's time over the pool's objective on a target, or the pool's mean (target None).

        The load is the current one, or the expected one at `at_s`.
        """
        targets = (
            (target,) if target is not None else self.pairs.decoders if self.pairs else self._view.roster.accepting
        )
        steps = [self._step_s(item, self._batch(item, now, at_s)) for item in targets]
        # Without engines the sum is 0 too.
        return sum(steps) / (len(steps) * self._tpot_slo_s or 1.0)

    def prefill_load(self, now: float, slo_s: float) -> float:
        """Return the accepting engines' mean wait divided by the objective."""
        accepting = self._view.roster.accepting
        return sum(self._view.wait_s(target, now) for target in accepting) / (len(accepting) * slo_s or 1.0)

    def tokens_s(self, tokens: int) -> float:
        """Return the seconds to prefill `tokens` uncached tokens on one engine."""
        return tokens * self._token_s

    # -- the decode side

    def _judge_decode(self, request: InferenceRequest, choice: Choice, now: float, at_s: float) -> Rejected | None:
        if self.pairs is not None and choice.target not in self.pairs.alone:
            limit_s = self.settings.threshold * (request.tpot_slo_s or self._tpot_slo_s)
            wait_s = self.pairs.overload_s(request, now, at_s, limit_s)
            if wait_s is not None:
                return Rejected(request.request_id, reasons.DECODE_OVERLOAD, max(_LEAST_RETRY_S, wait_s))
            return None
        # `early` takes the present load (§4.3.2), the predictive modes that at the end of the prefill (§4.3.4).
        moment = None if self.settings.mode == EARLY else at_s
        alone = self.settings.mode == PREDICTIVE_INSTANCE and choice.target != CENTRAL
        targets = (choice.target,) if alone else self._view.roster.accepting
        # The request itself is one of the batch.
        batches = [self._batch(target, now, moment) + 1 for target in targets]
        step_s = sum(map(self._step_s, targets, batches)) / len(targets)
        limit_s = self.settings.threshold * (request.tpot_slo_s or self._tpot_slo_s)
        if step_s <= limit_s:
            return None
        batch = sum(batches) / len(targets)
        fitting = self._cost(targets[0]).batch_within(limit_s, self.book.context_tokens)
        # Decodes end evenly over the duration of one.
        retry_s = self.decode_s * min(1.0, max(0.0, batch - fitting) / batch)
        return Rejected(request.request_id, reasons.DECODE_OVERLOAD, max(_LEAST_RETRY_S, retry_s))

    @property
    def decode_s(self) -> float:
        """Uniform decode time t_d: the policy's, else the observed mean."""
        return self.settings.decode_s or self.book.decode_s

    def _cost(self, target: int) -> DecodeCost:
        return self._view.roster.decode_costs[target] or self._decode_cost

    def _step_s(self, target: int, batch: float) -> float:
        """Return the seconds of a decode step on the target, with this request in the batch."""
        return self._cost(target).seconds(batch, batch * self.book.context_tokens)

    def _batch(self, target: int, now: float, at_s: float | None) -> float:
        """Return how many requests decode on the target, now or at `at_s`."""
        book, view = self.book, self._view
        if at_s is None or at_s <= now:
            return book.decoding(target)
        ahead_s = at_s - now
        pending, ready_s = view.load.pending_requests[target], max(view.load.ready_at[target] - now, 0.0)
        # Prefills end evenly until the target is ready.
        until_s = min(ready_s, ahead_s)
        ending = pending * (until_s / ready_s if ready_s > 0 else 1.0) if ready_s != NEVER else 0.0
        uniform_s = self.settings.decode_s
        if uniform_s:
            late_s = max(0.0, until_s - max(0.0, ahead_s - uniform_s))
            staying = book.decoding_after(target, at_s - uniform_s)
            return staying + ending * (late_s / until_s if until_s > 0 else float(ahead_s < uniform_s))
        # Every decode ends at the rate 1/mean, whatever its age (Little's law for the whole batch): exact in
        # the mean whatever the spread of decodes, where a uniform time counts long ones as over.
        mean_s = max(book.decode_s, 1e-3)
        kept = exp(-(ahead_s - until_s) / mean_s)
        share = mean_s / until_s * (1.0 - exp(-until_s / mean_s)) if until_s > 0 else 1.0
        return book.decoding(target) * exp(-ahead_s / mean_s) + ending * kept * share

    # -- the prefill side

    def _least(
        self, request: InferenceRequest, now: float, loads: LoadOptions | None, bound: Reservation | None = None
    ) -> tuple[float, float]:
        """Return the lowest TTFT and the lowest prefill seconds over all engines, if the request went next."""
        view, free_at = self._view, self._free_at
        others, ttft_s, compute_s = view.roster.accepting_mask, NEVER, NEVER
        match = view.match(request)
        if bound is not None:
            # The request's own blocks are on their way to its engine: for the others only resident blocks count.
            match, compute_s = view.resident_match(request), bound.compute_s
            ttft_s = max(free_at(bound.target) - now, 0.0) + compute_s
            if bound.loads is not None:
                loads = bound.loads = view.load_options(request, now, bound.loads)
        if loads is not None and loads.groups:
            return self._least_with_loads(Prefills(request, view, loads), match, now, ttft_s, compute_s)
        for blocks, mask in (*match.groups, (0, view.roster.accepting_mask)):
            holders = mask & others
            others &= ~mask
            alike: float | None = None
            while holders:
                low = holders & -holders
                holders ^= low
                target = low.bit_length() - 1
                # Equal engines with equal matches take equal time, computed once.
                if alike is None or not view.roster.alike:
                    alike = view.compute_s(request, target, view.hit_tokens(request, target, blocks))
                compute_s = min(compute_s, alike)
                ttft_s = min(ttft_s, max(free_at(target) - now, 0.0) + alike)
        return ttft_s, compute_s

    def _least_with_loads(
        self, prefills: Prefills, match: PrefixMatch, now: float, ttft_s: float, compute_s: float
    ) -> tuple[float, float]:
        """Return the same if node managers hold part of the prompt.

        The times on a bound request's own engine are given.
        """
        for target in self._view.roster.accepting:
            seconds = prefills.on(target, match.blocks(target)).seconds
            compute_s = min(compute_s, seconds)
            ttft_s = min(ttft_s, max(self._free_at(target) - now, 0.0) + seconds)
        return ttft_s, compute_s
