"""Last link of the gateway's chain: the pool's router, with what this gateway does at each of its dispatches."""

from __future__ import annotations

from gateway.base.loop_lag import LoopLag
from gateway.kv.moves.kv_moves import PoolMoves
from gateway.pools.pool.dispatch_feed import DispatchFeed
from gateway.pools.pool.overload import queue_rejection
from gateway.pools.traffic.queue_window import QueueWindow
from routing.router import Router
from routing.values.decision import Dispatched, Outcome, Queued, id_of
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, Failed, HandedOver, Observation


class PoolRouter:
    """The router of one pool. While the event loop's lag is sustained, it rejects late requests.

    Mutable: `queued`, the requests that wait, by id.
    """

    def __init__(self, router: Router, feed: DispatchFeed, queue: QueueWindow, lag: LoopLag, moves: PoolMoves) -> None:
        self.router = router
        self.next_wake, self.advise, self.withdraw = router.next_wake, router.advise, router.withdraw
        self._feed, self._queue, self._lag, self._moves = feed, queue, lag, moves
        self.queued: dict[str, InferenceRequest] = {}

    def place(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> Outcome:
        """Decide on a request. Raise ValueError for the id of a running request."""
        if hold and not excluded and (late := queue_rejection(self._lag, self.router, request)):
            return late
        outcome = self.router.place(request, now, hold=hold, excluded=excluded)
        # By type: these are final classes, and each decision runs this code.
        if type(outcome) is Dispatched:
            self._dispatched(outcome, request)
        elif type(outcome) is Queued:
            self.queued[request.request_id] = request
            self._moves.queued(request, outcome, now)
        return outcome

    def _dispatched(self, outcome: Dispatched, request: InferenceRequest) -> None:
        self._queue.dispatched(outcome.decision.queued_s)
        self._feed.dispatched(outcome.decision, request)
        self._moves.dispatched(request, outcome.decision)

    def _ended(self, request_id: str) -> InferenceRequest | None:
        """End the wait of a request; return it, None if it did not wait."""
        request = self.queued.pop(request_id, None)
        if request is not None:
            self._moves.left(request_id)
        return request

    def followed(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Return the outcomes of queued requests after this gateway's own part."""
        for outcome in outcomes:
            if not isinstance(outcome, Queued):
                request = self._ended(id_of(outcome))
                if request is not None and isinstance(outcome, Dispatched):
                    self._dispatched(outcome, request)
        return outcomes

    def observe(self, observation: Observation, now: float) -> list[Outcome]:
        """Process an observation of a request."""
        self._feed.observed(observation)
        if self.queued and isinstance(observation, Completed | Failed):
            self._ended(observation.request_id)
        if isinstance(observation, Completed | HandedOver) and observation.load is not None:
            reservation = self.router.reservations.get(observation.request_id)
            if reservation is not None:
                engine_id = self.router.view.roster.engine_ids[reservation.target]
                self._moves.loaded(reservation.request, engine_id, observation.load, now)
        outcomes = self.router.observe(observation, now)
        return self.followed(outcomes) if outcomes else outcomes

    def tick(self, now: float) -> list[Outcome]:
        """Do the router's work that is due."""
        return self.followed(self.router.tick(now))

    def take_observed(self, request: InferenceRequest, engine_id: str, now: float) -> Dispatched | None:
        """Account for a request that others have sent to the engine. Return None if the engine accepts no work."""
        dispatched = self.router.observed.take(request, engine_id, now)
        if dispatched is not None:
            self._dispatched(dispatched, request)
        return dispatched

    def adopt(self, request: InferenceRequest, engine_id: str, now: float) -> Dispatched | None:
        """Account for a request that another gateway has decided on.

        Return None if the engine accepts no work here or the request is known.
        """
        dispatched = self.router.adopt(request, engine_id, now)
        if dispatched is not None:
            self._feed.dispatched(dispatched.decision, request)
        return dispatched
