from routing.observation import Failed, FirstToken
from routing.prefetch_order import MAX_ORDERS, PrefetchOrders
from routing.router import Router
from tests.routing.pools import pool, request

LONG = range(20)


def waiting_pool() -> Router:
    """Two engines and round robin, so that a ticket waits where its prefix is not."""
    router = pool("round_robin", size=2, grant_tokens=1, grant_lookahead_s=0.0)
    assert router.take_prefetch_orders() == []
    for number in (1, 2):
        router.submit(request(number, range(100 * number, 100 * number + 20)), 0.0)
    router.blocks_stored("e-02", request(3, LONG).keys[:12])
    router.submit(request(3, LONG), 0.0)
    return router


def test_a_waiting_ticket_orders_what_another_engine_holds_once() -> None:
    router = waiting_pool()
    (order,) = router.take_prefetch_orders()
    assert (order.request_id, order.engine_id, order.source_engine_id) == ("request-00000003", "e-01", "e-02")
    assert (order.first_block, order.keys) == (0, request(3, LONG).keys[:12])
    assert router.take_prefetch_orders() == []
    router.check()


def test_a_granted_or_withdrawn_ticket_orders_nothing_any_more() -> None:
    router = waiting_pool()
    router.observe(FirstToken("request-00000001"), 0.9)
    assert router.take_prefetch_orders() == []
    router = waiting_pool()
    router.observe(Failed("request-00000003"), 0.1)
    assert router.take_prefetch_orders() == []


def test_nothing_is_ordered_for_a_prompt_whose_engine_holds_as_much() -> None:
    router = pool("round_robin", size=2, grant_tokens=1, grant_lookahead_s=0.0)
    router.take_prefetch_orders()
    for engine_id in ("e-01", "e-02"):
        router.blocks_stored(engine_id, request(3, LONG).keys)
    for number in range(3, 7):
        router.submit(request(number, [*LONG, 100 + number]), 0.0)
    assert len(router.waiting) > 0
    assert router.take_prefetch_orders() == []


def test_without_a_taker_none_are_kept_and_with_one_they_are_bounded() -> None:
    router, orders = pool(size=2), PrefetchOrders()
    router.blocks_stored("e-02", request(1, LONG).keys)
    orders.note(request(1, LONG), 0, 0, router.view)
    assert len(orders) == 0
    orders.take()
    for number in range(MAX_ORDERS + 50):
        orders.note(request(number, LONG), 0, 0, router.view)
    assert len(orders) == MAX_ORDERS
    orders.check()
