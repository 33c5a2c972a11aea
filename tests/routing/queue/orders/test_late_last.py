from routing.queue.orders.fifo import Fifo
from routing.queue.orders.late_last import LateLast
from tests.routing.queue.queued_requests import VIEW, queue_of, queued, served


def test_infeasible_queued_requests_are_skipped() -> None:
    waiting = [queued(1, at=0.0), queued(2, at=1.0)]
    assert queue_of(LateLast(), waiting).next(0, VIEW, 3.9).queued == waiting[0]
    assert queue_of(LateLast(), waiting).next(0, VIEW, 4.5).queued == waiting[1]
    assert queue_of(Fifo(), waiting).next(0, VIEW, 4.5).queued == waiting[0]


def test_when_all_are_infeasible_the_oldest_goes_first() -> None:
    waiting = [queued(1, at=0.0, cost=1.0), queued(2, at=1.0, cost=9.0)]
    queue = queue_of(LateLast(), waiting)
    assert queue.next(0, VIEW, 4.0).queued == waiting[0]
    assert queue.next(0, VIEW, 50.0).queued == waiting[0]


def test_an_infeasible_request_can_leave_the_queue() -> None:
    waiting = [queued(1, at=0.0), queued(2, at=1.0)]
    queue = queue_of(LateLast(), waiting)
    queue.next(0, VIEW, 4.5)
    queue.remove(waiting[0])
    queue.check()
    assert queue.next(0, VIEW, 50.0).queued == waiting[1]


def test_infeasible_requests_come_last_in_order_of_arrival() -> None:
    waiting = [queued(1, cost=9.0), queued(2, cost=8.0), queued(3, cost=1.0), queued(4, cost=2.0)]
    assert served(LateLast(), waiting, 0.0) == [3, 4, 1, 2]


def test_a_request_given_up_is_reported_once_and_only_if_its_blocks_are_forgotten() -> None:
    waiting = [queued(1, at=0.0), queued(2, at=1.0)]
    forgetful, plain = queue_of(LateLast(forget_blocks=True), waiting), queue_of(LateLast(), waiting)
    for queue in (forgetful, plain):
        queue.next(0, VIEW, 4.5)
    assert forgetful.given_up() == [waiting[0].request.request_id]
    assert forgetful.given_up() == []
    assert plain.given_up() == []
