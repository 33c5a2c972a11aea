"""In-flight and queued work in the router's ledger, per engine and unbound."""

from __future__ import annotations

from routing.dispatch.request_queue import WaitingRoom
from routing.ledger.fleet_table import FleetTable
from routing.ledger.fleet_view import EngineLoad, FleetView
from routing.ledger.reservations import Reservations
from routing.pd.pair_assignment import EnginePairs
from routing.queue.dispatch_limit import DispatchLimit
from routing.values.decision import CENTRAL


def engine_loads(
    fleet: FleetTable,
    view: FleetView,
    reservations: Reservations,
    dispatch_limit: DispatchLimit,
    pairs: EnginePairs | None,
    now: float,
) -> list[EngineLoad]:
    """Return one load per engine, in the order of their ids. Decode engines include the requests promised to them."""
    loads = []
    for facts in fleet.facts():
        target = fleet.known_target(facts.engine_id)
        # A prefill past its estimate must not show as no work.
        reservations.refresh_overdue(target, now)
        legs = pairs.legs.answers(target) if pairs is not None else 0
        loads.append(
            EngineLoad(
                facts.engine_id,
                view.load.in_flight_tokens[target],
                reservations.in_flight_s(target, now),
                reservations.dispatched(target) + legs,
                reservations.waiting(target),
                dispatch_limit.stepped_down(target, now),
            )
        )
    return loads


def oldest_waits(view: FleetView, waiting: WaitingRoom, now: float) -> dict[str, float]:
    """Return, for each engine with queued requests, how many seconds the oldest has waited."""
    return {
        view.roster.engine_ids[target]: now - min(item.request.arrived_s for item in waiting.of(target))
        for target in waiting.targets()
        if target != CENTRAL
    }


def unbound_work(waiting: WaitingRoom, now: float) -> tuple[int, int, float]:
    """Return the number, prompt tokens, and longest wait in seconds of the unbound queued requests."""
    queued_requests = waiting.of(CENTRAL)
    tokens = sum(queued_request.request.prompt_tokens for queued_request in queued_requests)
    return (
        len(queued_requests),
        tokens,
        max((now - queued_request.request.arrived_s for queued_request in queued_requests), default=0.0),
    )
