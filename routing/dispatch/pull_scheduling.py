"""Pull scheduling: engines that can accept work pull unbound requests (research on scheduling §5, `late`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from routing.dispatch.request_queue import WaitingRoom
from routing.ledger.fleet_view import NEVER, FleetView
from routing.ledger.reservations import Reservations
from routing.placements.candidate_scores import KEPT, candidate
from routing.placements.least_cost import LeastCost
from routing.queue.dispatch_limit import DispatchLimit
from routing.queue.queue_order import Pick
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice, Dispatched, Outcome
from routing.values.inference_request import InferenceRequest

Bind = Callable[[InferenceRequest, Choice, float, bool], Outcome]
"""Binds a request to the chosen engine at a given time. The last argument states whether it can be queued there."""
MatchAtDispatch = Callable[[InferenceRequest, int], int]
"""Returns the leading blocks that the prefill of a request will hit at a target."""

_OTHERS = LeastCost()
"""Rule that selects the other candidates of a decision."""


class Pulling:
    """Lets each engine that can accept work pull a request, the longest idle engine first.

    Mutable state: whether an engine wants a queued request that it has not yet received.
    """

    def __init__(
        self,
        view: FleetView,
        waiting: WaitingRoom,
        reservations: Reservations,
        dispatch_limit: DispatchLimit,
        rng: Random,
        *,
        bind: Bind,
        match_at_dispatch: MatchAtDispatch,
    ) -> None:
        self._view = view
        self._waiting = waiting
        self._reservations = reservations
        self._dispatch_limit = dispatch_limit
        self._rng = rng
        self._bind = bind
        self._match_at_dispatch = match_at_dispatch
        self._wanted = False

    def dispatch_all(self, now: float) -> list[Outcome]:
        """Dispatch unbound requests until no engine that can accept work wants one."""
        self._wanted = False
        return self.dispatch_on(self._view.roster.accepting, now)

    def dispatch_on(self, targets: Sequence[int], now: float) -> list[Outcome]:
        """Dispatch unbound requests until none of these targets wants one."""
        outcomes: list[Outcome] = []
        waiting = self._waiting
        wanted = True
        # Each pass gives a free engine one request; it may have room for more.
        while wanted and waiting.has(CENTRAL):
            wanted = False
            for target in self._free(targets, now):
                pick = self._pick(target, now)
                dispatched = self._dispatch(target, pick, now) if pick is not None else None
                if dispatched is not None:
                    outcomes.append(dispatched)
                    wanted = True
        return outcomes

    def dispatch(self, request_id: str, now: float) -> Dispatched | None:
        """Dispatch this new unbound request if an engine that can accept work prefers it to the others."""
        for target in self._free(self._view.roster.accepting, now):
            pick = self._pick(target, now)
            if pick is not None and pick.queued.request.request_id == request_id:
                return self._dispatch(target, pick, now)
            # The engine wants an older request, which the next pass dispatches.
            self._wanted = self._wanted or pick is not None
        return None

    def moments(self, now: float) -> list[float]:
        """Return when to check busy engines again: the times at which they can become free without a report."""
        opens_at = (self._dispatch_limit.opens_at(target, now) for target in self._view.roster.accepting)
        moments = [moment for moment in opens_at if now < moment < NEVER]
        return [*moments, now] if self._wanted else moments

    def ahead_s(self) -> float:
        """Return how many seconds the unbound requests ahead of a newcomer keep the whole pool busy."""
        view = self._view
        speed = sum(view.roster.speeds[target] for target in view.roster.accepting)
        return self._waiting.unbound_s() / speed if speed else 0.0

    def _pick(self, target: int, now: float) -> Pick | None:
        return self._waiting.pull(target, self._view, self._reservations.starts_at(target, now))

    def _free(self, targets: Sequence[int], now: float) -> list[int]:
        """Return the targets that can accept work and have no bound request, longest idle first."""
        ready_at = self._view.load.ready_at
        mask = self._view.roster.accepting_mask
        # An overdue prefill must not make a stuck engine seem idle.
        for target in self._view.roster.accepting:
            self._reservations.refresh_overdue(target, now)
        free = [
            target
            for target in targets
            if mask >> target & 1
            and not self._waiting.has(target)
            and self._dispatch_limit.may_dispatch(target, 0, 0, now)
        ]
        return sorted(free, key=lambda target: (ready_at[target], target))

    def _dispatch(self, target: int, pick: Pick, now: float) -> Dispatched | None:
        """Bind the request to the target and dispatch it with fresh estimates. Return None if it does not fit."""
        view, request = self._view, pick.queued.request
        blocks = self._match_at_dispatch(request, target)
        chosen = candidate(request, view, target, blocks, now)
        uncached_tokens = request.prompt_tokens - chosen.hit_tokens
        if not self._dispatch_limit.may_dispatch(target, uncached_tokens, request.prompt_tokens, now):
            return None
        # For the record only: the engine is chosen already.
        others = _OTHERS.choose(request, view, now, self._rng).candidates
        kept = (chosen, *(other for other in others if other.engine_id != chosen.engine_id))[:KEPT]
        _, overtook = self._waiting.dispatch(request.request_id, chosen.compute_s, now)
        dispatched = self._bind(request, Choice(target, reasons.PULLED, kept), now, False)
        if not isinstance(dispatched, Dispatched):
            raise TypeError("a bound request that does not wait is granted")
        decision = msgspec.structs.replace(
            dispatched.decision, queued_s=now - request.arrived_s, queue_reason=pick.reason, overtook=overtook
        )
        return Dispatched(decision)
