"""Hotspot-aware migration: queued requests of overloaded engines go to another of their own candidates (DualMap §3.3).

Migration starts when a request is bound although all its candidates would miss its objective, or when decodes block an
engine, because its queued requests are then delayed too (A.8.3). Each of those engines is relieved (A.2.2). A queued
request can move if it gains time (eq. 6) and would be on time, including its wait so far. The largest gain moves first,
until all remaining requests are expected to be on time. Only queued requests move, never running ones, and only among
the candidates that the placement compared, so that prefixes keep their engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from routing.dispatch.dispatcher import Dispatcher
from routing.ledger.reservations import Reservation
from routing.placements.placement import Placement
from routing.values.decision import CENTRAL, Decision, Outcome

MAX_EXAMINED = 256
"""Maximum queued requests of one engine examined per round, oldest first."""
PAUSE_S = 0.05
"""Minimum time between two rounds of one engine. Each round examines its whole queue."""
MIN_GAIN_S = 0.0


class Migration:
    """Detects overload and moves queued requests. Mutable: the hot engines, and when each was last relieved."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.moved = 0
        """Number of queued requests moved since the start."""
        self._dispatcher = dispatcher
        self._hot: set[str] = set()
        self._relieved_s: dict[str, float] = {}

    def note(self, decision: Decision, slo_s: float, now: float) -> None:
        """Mark the candidate engines of a queued request as hot if all of them would miss its objective."""
        candidates = decision.candidates
        # A single candidate has nowhere to move.
        if len(candidates) < 2 or not self._dispatcher.arms.moves(decision):
            return
        if any(candidate.wait_s + candidate.compute_s <= slo_s for candidate in candidates):
            return
        self._heat((candidate.engine_id for candidate in candidates), now)

    def note_held_up(self, targets: Sequence[int], now: float) -> None:
        """Treat these targets as overloaded, because they produce no first tokens."""
        self._heat((self._dispatcher.view.roster.engine_ids[target] for target in targets), now)

    def _heat(self, engine_ids: Iterable[str], now: float) -> None:
        for engine_id in engine_ids:
            if now - self._relieved_s.get(engine_id, -PAUSE_S) >= PAUSE_S:
                self._hot.add(engine_id)

    @property
    def placement(self) -> Placement:
        """Placement between whose candidates queued requests move."""
        return self._dispatcher.placement

    @property
    def due(self) -> bool:
        """Whether an engine is due to be relieved."""
        return bool(self._hot)

    def relieve(self, now: float) -> list[Outcome]:
        """Move requests that gain from it away from the hot engines. Return the dispatches that follow."""
        outcomes: list[Outcome] = []
        if not self._hot:
            return outcomes
        dispatcher = self._dispatcher
        touched: set[int] = set()
        # A set of strings has another order in each process, and the first engine moves first.
        for engine_id in sorted(self._hot):
            target = dispatcher.fleet.target_of(engine_id)
            if target is not None:
                self._relieved_s[engine_id] = now
                touched |= self._relieve(target, now)
        self._hot.clear()
        # Engines that left are dropped in bulk.
        if len(self._relieved_s) > 2 * len(dispatcher.view.roster.accepting) + MAX_EXAMINED:
            self._relieved_s = {relieved: at for relieved, at in self._relieved_s.items() if now - at < PAUSE_S}
        for target in sorted(touched):
            outcomes += dispatcher.pump_target(target, now)
        return outcomes

    def relieve_engine(self, engine_id: str, at_most: int, now: float) -> list[Outcome]:
        """Move up to `at_most` requests away from a hot engine. Return the dispatches that follow.

        Unknown engines are ignored.
        """
        outcomes: list[Outcome] = []
        target = self._dispatcher.fleet.target_of(engine_id)
        if target is not None and at_most > 0:
            for other in sorted(self._relieve(target, now, at_most)):
                outcomes += self._dispatcher.pump_target(other, now)
        return outcomes

    def _relieve(self, target: int, now: float, at_most: int = MAX_EXAMINED) -> set[int]:
        """Move queued requests away from one engine. Return the targets that received some."""
        dispatcher = self._dispatcher
        queued_requests = dispatcher.waiting.of(target)[:MAX_EXAMINED]
        start_s = dispatcher.reservations.start_s(target, now)
        touched: set[int] = set()
        if not _any_late(queued_requests, start_s, now):
            return touched
        moves = sorted(self._moves(queued_requests, target, start_s, now), key=lambda move: (-move[0], move[1]))
        left = {queued.request.request_id: queued for queued in queued_requests}
        for _, position, other in moves:
            queued = queued_requests[position]
            request_id = queued.request.request_id
            # Evaluated again, because earlier moves of this round have filled the other engine.
            if request_id not in left or self._ttft_s(queued, other, now)[0] > queued.request.ttft_slo_s:
                continue
            dispatcher.move(request_id, other, now)
            self.moved += 1
            touched.add(other)
            del left[request_id]
            if len(queued_requests) - len(left) >= at_most or not _any_late(list(left.values()), start_s, now):
                break
        return touched

    def _moves(
        self, queued_requests: Sequence[Reservation], target: int, start_s: float, now: float
    ) -> list[tuple[float, int, int]]:
        """Return (gain in seconds, position of the queued request, other target) of all worthwhile moves."""
        dispatcher = self._dispatcher
        moves: list[tuple[float, int, int]] = []
        end_s, delay_s = start_s, dispatcher.reservations.delay_s(target)
        for position, queued in enumerate(queued_requests):
            end_s += queued.compute_s
            # Its wait so far counts: the objective is from its arrival on.
            here_s = now - queued.request.arrived_s + end_s
            decision = dispatcher.waiting.decision(queued.request.request_id)
            if dispatcher.arms.candidate_arms is not None and not dispatcher.arms.moves(decision):
                continue
            for candidate in decision.candidates:
                other = dispatcher.fleet.target_of(candidate.engine_id)
                if other is None or other == target or not dispatcher.view.roster.accepting_mask >> other & 1:
                    continue
                there_s, compute_s = self._ttft_s(queued, other, now)
                # Leaving a cache must not take more engine time than the delay that it avoids.
                if delay_s and compute_s - queued.compute_s > delay_s:
                    continue
                if here_s - there_s > MIN_GAIN_S and there_s <= queued.request.ttft_slo_s:
                    moves.append((here_s - there_s, position, other))
        return moves

    def _ttft_s(self, queued: Reservation, target: int, now: float) -> tuple[float, float]:
        """Return the request's (TTFT since arrival, prefill time) in seconds, if it were bound to this target now."""
        view, request = self._dispatcher.view, queued.request
        blocks = view.match(request).blocks(target)
        compute_s = view.compute_s(request, target, view.hit_tokens(request, target, blocks))
        wait_s = view.wait_s(target, now) + self._dispatcher.reservations.delay_s(target)
        return now - request.arrived_s + wait_s + compute_s, compute_s


def late_where_queued(dispatcher: Dispatcher, now: float) -> list[Reservation]:
    """Return the queued requests that would miss their objective on their engines, for a new engine to take its part.

    Without it, they would wait for engines that were chosen while there were fewer, although the new one is idle.
    """
    late: list[Reservation] = []
    for target in dispatcher.waiting.targets():
        # Requests of the central queue have no engine; those of an engine that takes no work are placed again anyway.
        if target == CENTRAL or not dispatcher.view.roster.accepting_mask >> target & 1:
            continue
        queued_requests = dispatcher.waiting.of(target)[:MAX_EXAMINED]
        late += _late(queued_requests, dispatcher.reservations.start_s(target, now), now)
    return late


def _any_late(queued_requests: Sequence[Reservation], start_s: float, now: float) -> bool:
    return next(_late(queued_requests, start_s, now), None) is not None


def _late(queued_requests: Sequence[Reservation], start_s: float, now: float) -> Iterator[Reservation]:
    """Yield the queued requests that would miss their objective if all ran in this order from `start_s` on."""
    end_s = now + start_s
    for queued in queued_requests:
        end_s += queued.compute_s
        if end_s > queued.request.deadline_s:
            yield queued
