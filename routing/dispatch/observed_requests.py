"""Requests routed by another proxy or gateway: the router counts them on their engine without choosing one."""

from __future__ import annotations

from routing.dispatch.dispatcher import Dispatcher
from routing.placements.candidate_scores import candidate
from routing.values import reasons
from routing.values.decision import Choice, Dispatched
from routing.values.inference_request import InferenceRequest


class ObservedRequests:
    """Entry point for requests that others have routed. Their progress is reported to the router as usual."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def adopt(self, request: InferenceRequest, engine_id: str, now: float) -> Dispatched | None:
        """Bind a request that another gateway has decided on, and that it counts and compares.

        Return None if the engine accepts no work here or the request is known.
        """
        known = self._dispatcher.reservations.get(request.request_id) is not None
        return None if known else self._bind(request, engine_id, now, counted=False)

    def take(self, request: InferenceRequest, engine_id: str, now: float) -> Dispatched | None:
        """Bind a request to the engine that serves it, where no other router counts and compares it.

        Return None if the engine is unknown or out of service. Raises ValueError if the id is already in use.
        """
        if self._dispatcher.reservations.get(request.request_id) is not None:
            raise ValueError(f"request {request.request_id} is already here; ids are used once")
        return self._bind(request, engine_id, now, counted=True)

    def _bind(self, request: InferenceRequest, engine_id: str, now: float, *, counted: bool) -> Dispatched | None:
        dispatcher = self._dispatcher
        view, target = dispatcher.view, dispatcher.fleet.target_of(engine_id)
        if target is None or target not in view.roster.accepting:
            return None
        sent = candidate(request, view, target, view.match(request).blocks(target), now)
        choice = Choice(target, reasons.OBSERVED, (sent,))
        if dispatcher.observer is not None and counted:
            dispatcher.observer.placed(request, choice, view, now)
        outcome = dispatcher.bind(request, choice, now, hold=False)
        if counted:
            dispatcher.counts.answered(outcome)
        return outcome if isinstance(outcome, Dispatched) else None
