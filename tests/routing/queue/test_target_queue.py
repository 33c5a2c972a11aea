import msgspec

from routing.ledger.fleet_view import NEVER
from routing.ledger.reservations import Reservation
from routing.policy.fairness_document import FairnessDocument
from routing.queue.orders.fifo import Fifo
from routing.queue.orders.slack import Slack
from routing.queue.target_queue import LineRules, WaitingLine
from routing.values import reasons
from tests.routing.queue.queued_requests import VIEW, queued

UNFAIR, FAIR = FairnessDocument(), FairnessDocument(enabled=True)


def of_tenant(number: int, tenant: str, cost: float = 1.0) -> Reservation:
    plain = queued(number, cost=cost)
    return Reservation(msgspec.structs.replace(plain.request, tenant_id=tenant), 0, cost, 0)


def line(
    queued_requests: list[Reservation], fairness: FairnessDocument = UNFAIR, bound_s: float = NEVER
) -> WaitingLine:
    made = WaitingLine(Slack().queue, LineRules(fairness, bound_s))
    for queued_request in queued_requests:
        made.add(queued_request)
    return made


def test_a_dispatch_returns_how_many_earlier_requests_stay_behind() -> None:
    waiting = [queued(1, cost=3.0), queued(2, cost=2.5), queued(3, cost=0.5)]
    made = line(waiting)
    pick = made.next(0, VIEW, 0.0)
    assert pick == (waiting[2], reasons.SHORTEST_FEASIBLE)
    assert made.dispatch(waiting[2], 0.5, 0.0) == 2
    assert made.dispatch(waiting[0], 3.0, 0.5) == 0
    made.check()


def test_a_queued_request_skipped_for_longer_than_the_bound_goes_next() -> None:
    long, others = queued(1, cost=4.9), [queued(number, at=1.0, slo=60.0, cost=0.1) for number in range(2, 9)]
    made = line([long, *others], bound_s=10.0)
    made.dispatch(others[0], 0.1, 2.0)
    at_bound = made.next(0, VIEW, 12.0)
    assert at_bound is not None
    assert at_bound.queued != long
    assert made.next(0, VIEW, 12.1) == (long, reasons.STARVATION_LIMIT)
    made.dispatch(long, 4.9, 12.1)
    after = made.next(0, VIEW, 17.0)
    assert after is not None
    assert after.reason != reasons.STARVATION_LIMIT


def test_tenants_are_served_in_turn_and_each_tenants_requests_by_the_order() -> None:
    flood = [of_tenant(number, "flood") for number in range(1, 6)]
    made = line([*flood, of_tenant(6, "one", cost=1.5), of_tenant(7, "one")], FAIR)
    served = []
    for _ in range(4):
        pick = made.next(0, VIEW, 0.0)
        assert pick is not None
        assert pick.reason == reasons.FAIR_SHARE
        made.dispatch(pick.queued, pick.queued.compute_s, 0.0)
        made.check()
        served.append(int(pick.queued.request.request_id.split("-")[1]))
    assert served[0] == 1
    assert served.index(7) == 1
    alone = line(flood, FAIR).next(0, VIEW, 0.0)
    assert alone is not None
    assert alone.reason != reasons.FAIR_SHARE


def test_a_withdrawn_queued_request_is_not_charged_to_its_tenant() -> None:
    first, second = of_tenant(1, "a", cost=9.0), of_tenant(2, "a")
    made = WaitingLine(Fifo().queue, LineRules(FAIR))
    for item in (first, second, of_tenant(3, "b")):
        made.add(item)
    made.remove(first)
    assert made.next(0, VIEW, 0.0) == (second, reasons.FAIR_SHARE)
