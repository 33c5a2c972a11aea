"""Late binding, carried out: engines that can take work pull unbound tickets (research on scheduling §5, `late`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from routing.ledger.fleet_view import NEVER
from routing.placements.candidate_scores import KEPT, candidate
from routing.placements.least_cost import LeastCost
from routing.queue.queue_order import Pick
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice, Granted, Outcome

if TYPE_CHECKING:
    from routing.dispatch.dispatcher import Dispatcher

_OTHERS = LeastCost()
"""Whom a decision names beside the engine that pulled."""


class Pulling:
    """Lets each engine that can take work pull, the one that is idle for longest first.

    Mutable state: whether an engine is known to want a ticket that it was not granted yet.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._wanted = False

    def grant_all(self, now: float) -> list[Outcome]:
        """Grant unbound tickets until no engine that can take work wants one."""
        self._wanted = False
        return self.grant_on(self._dispatcher.view.accepting, now)

    def grant_on(self, targets: Sequence[int], now: float) -> list[Outcome]:
        """Grant unbound tickets until none of these targets that can take work wants one."""
        outcomes: list[Outcome] = []
        waiting = self._dispatcher.waiting
        wanted = True
        while wanted and waiting.has(CENTRAL):
            wanted = False
            for target in self._free(targets, now):
                pick = self._pick(target, now)
                granted = self._grant(target, pick, now) if pick is not None else None
                if granted is not None:
                    outcomes.append(granted)
                    wanted = True
        return outcomes

    def grant(self, request_id: str, now: float) -> Granted | None:
        """Grant this unbound ticket, which has just come, if an engine that can take work wants it first."""
        for target in self._free(self._dispatcher.view.accepting, now):
            pick = self._pick(target, now)
            if pick is not None and pick.ticket.request.request_id == request_id:
                return self._grant(target, pick, now)
            self._wanted = self._wanted or pick is not None
        return None

    def moments(self, now: float) -> list[float]:
        """Return when engines that are busy are to be asked again, as far as time alone makes them free."""
        dispatcher = self._dispatcher
        opens_at = (dispatcher.push_gate.opens_at(target, now) for target in dispatcher.view.accepting)
        moments = [moment for moment in opens_at if now < moment < NEVER]
        return [*moments, now] if self._wanted else moments

    def ahead_s(self) -> float:
        """Return the seconds for which the unbound tickets that go before a newcomer keep the whole pool busy."""
        view = self._dispatcher.view
        speed = sum(view.speeds[target] for target in view.accepting)
        return self._dispatcher.waiting.unbound_s() / speed if speed else 0.0

    def _pick(self, target: int, now: float) -> Pick | None:
        dispatcher = self._dispatcher
        at_s = max(now, dispatcher.reservations.free_at(target))
        return dispatcher.waiting.pull(target, dispatcher.view, at_s)

    def _free(self, targets: Sequence[int], now: float) -> list[int]:
        """Return the targets that can take work and have no ticket bound to them, the one idle for longest first."""
        dispatcher = self._dispatcher
        ready_at = dispatcher.view.ready_at
        mask = dispatcher.view.accepting_mask
        for target in dispatcher.view.accepting:
            dispatcher.reservations.refresh_overdue(target, now)
        free = [
            target
            for target in targets
            if mask >> target & 1
            and not dispatcher.waiting.has(target)
            and dispatcher.push_gate.may_push(target, 0, 0, now)
        ]
        return sorted(free, key=lambda target: (ready_at[target], target))

    def _grant(self, target: int, pick: Pick, now: float) -> Granted | None:
        """Bind the ticket to the target and grant it, with fresh estimates; None where it does not fit there."""
        dispatcher, request = self._dispatcher, pick.ticket.request
        view = dispatcher.view
        blocks = dispatcher.match_at_grant(request, target)
        chosen = candidate(request, view, target, blocks, now)
        uncached_tokens = request.prompt_tokens - chosen.hit_tokens
        if not dispatcher.push_gate.may_push(target, uncached_tokens, request.prompt_tokens, now):
            return None
        others = _OTHERS.choose(request, view, now, dispatcher.rng).candidates
        kept = (chosen, *(each for each in others if each.engine_id != chosen.engine_id))[:KEPT]
        _, overtook = dispatcher.waiting.grant(request.request_id, chosen.compute_s, now)
        granted = dispatcher.bind(request, Choice(target, reasons.PULLED, kept), now, hold=False)
        if not isinstance(granted, Granted):
            raise TypeError("a bound request that does not wait is granted")
        decision = msgspec.structs.replace(
            granted.decision, queued_s=now - request.arrived_s, queue_reason=pick.reason, overtook=overtook
        )
        return Granted(decision)
