from routing.observation import Failed, FirstToken
from routing.policy_document import RoutingPolicy, Stage
from routing.prefetch_order import MAX_ORDERS, PrefetchOrders
from routing.router import Router
from tests.routing.pools import engines, pool, request

LONG = range(20)


def waiting_pool() -> Router:
    """Two engines and round robin, so that a ticket waits where its prefix is not."""
    router = pool("round_robin", size=2, grant_tokens=1, grant_lookahead_s=0.0)
    assert router.take_prefetch(0.0) == ([], [])
    for number in (1, 2):
        router.submit(request(number, range(100 * number, 100 * number + 20)), 0.0)
    router.blocks_stored("e-02", request(3, LONG).keys[:12])
    router.submit(request(3, LONG), 0.0)
    return router


def test_a_waiting_ticket_orders_what_another_engine_holds_once() -> None:
    router = waiting_pool()
    (order,), withdrawn = router.take_prefetch(0.0)
    assert (order.request_id, order.engine_id, order.source_engine_id) == ("request-00000003", "e-01", "e-02")
    assert (order.first_block, order.keys) == (0, request(3, LONG).keys[:12])
    assert withdrawn == []
    assert router.take_prefetch(0.0) == ([], [])
    router.check()


def test_a_granted_or_withdrawn_ticket_orders_nothing_any_more() -> None:
    router = waiting_pool()
    router.observe(FirstToken("request-00000001"), 0.9)
    assert router.take_prefetch(0.9) == ([], [])
    router = waiting_pool()
    router.observe(Failed("request-00000003"), 0.1)
    assert router.take_prefetch(0.1) == ([], [])


def test_an_order_that_was_taken_is_withdrawn_once_when_its_ticket_is_granted() -> None:
    router = waiting_pool()
    assert len(router.take_prefetch(0.1).orders) == 1
    router.observe(FirstToken("request-00000001"), 0.9)
    assert router.take_prefetch(0.9) == ([], ["request-00000003"])
    assert router.take_prefetch(0.9) == ([], [])
    router.check()


def test_nothing_is_ordered_for_a_prompt_whose_engine_holds_as_much() -> None:
    router = pool("round_robin", size=2, grant_tokens=1, grant_lookahead_s=0.0)
    router.take_prefetch(0.0)
    for engine_id in ("e-01", "e-02"):
        router.blocks_stored(engine_id, request(3, LONG).keys)
    for number in range(3, 7):
        router.submit(request(number, [*LONG, 100 + number]), 0.0)
    assert len(router.waiting) > 0
    assert router.take_prefetch(0.0).orders == []


def test_without_a_taker_none_are_kept_and_with_one_they_are_bounded() -> None:
    router, orders = pool(size=2), PrefetchOrders()
    router.blocks_stored("e-02", request(1, LONG).keys)
    orders.note(request(1, LONG), 0, 0, router.view)
    assert len(orders) == 0
    orders.take()
    for number in range(MAX_ORDERS + 50):
        orders.note(request(number, LONG), 0, 0, router.view)
    assert len(orders) == MAX_ORDERS
    assert len(orders.take().orders) == MAX_ORDERS
    for number in range(2 * MAX_ORDERS, 2 * MAX_ORDERS + 50):
        orders.note(request(number, LONG), 0, 0, router.view)
    orders.take()
    orders.check()
    for number in range(2 * MAX_ORDERS + 50):
        orders.forget(f"request-{number:08}")
    assert len(orders.take().withdrawn) == MAX_ORDERS


def held_pool() -> Router:
    """Two engines that will be free after 0.9 s and 1.9 s, and two unbound tickets whose prompts a third one holds."""
    router = pool("central", "late_binding", size=3, grant_tokens=1, grant_lookahead_s=0.0)
    router.take_prefetch(0.0)
    router.submit(request(1, range(100, 120)), 0.0)
    router.submit(request(2, range(200, 240)), 0.0)
    router.submit(request(3, range(300, 380), slo=60.0), 0.0)
    for number, first in ((4, 400), (5, 500)):
        router.blocks_stored("e-03", request(number, range(first, first + 20)).keys[:12])
        router.submit(request(number, range(first, first + 20), slo=4.0), 0.0)
    return router


def test_an_unbound_ticket_orders_for_the_engine_that_will_pull_it_once_that_is_soon_free() -> None:
    router = held_pool()
    assert router.unbound(0.0)[0] == 2
    (order,) = router.take_prefetch(0.0).orders
    assert (order.request_id, order.engine_id, order.source_engine_id) == ("request-00000004", "e-01", "e-03")
    assert (order.first_block, len(order.keys)) == (0, 12)
    assert router.take_prefetch(0.1) == ([], [])
    router.check()
    # The other is ordered for the next engine, when that is soon free.
    (other,) = router.take_prefetch(1.5).orders
    assert (other.request_id, other.engine_id) == ("request-00000005", "e-02")


def test_orders_do_not_change_what_is_pulled_and_are_withdrawn_then() -> None:
    asked, unasked = held_pool(), held_pool()
    (order,) = asked.take_prefetch(0.0).orders
    grants = [router.observe(FirstToken("request-00000002"), 0.5) for router in (asked, unasked)]
    assert [[(each.decision.decision_id, each.decision.engine_id) for each in some] for some in grants] == [
        [("request-00000004", "e-02")]
    ] * 2  # type: ignore[comparison-overlap]
    assert order.request_id in asked.take_prefetch(0.5).withdrawn
    asked.check()


def test_blocks_that_came_are_found_by_the_pull() -> None:
    router = held_pool()
    (order,) = router.take_prefetch(0.0).orders
    router.blocks_stored(order.engine_id, order.keys)
    (granted,) = router.observe(FirstToken("request-00000001"), 0.9)
    assert (granted.decision.decision_id, granted.decision.engine_id) == (order.request_id, order.engine_id)  # type: ignore[union-attr]
    assert granted.decision.hit_tokens == len(order.keys) * 512  # type: ignore[union-attr]


def test_an_engine_that_takes_no_more_work_gets_no_order() -> None:
    router = held_pool()
    router.set_engines([*engines(1, accepts=False), *engines(3)[1:]], 0.0)
    assert all(order.engine_id != "e-01" for order in router.take_prefetch(0.0).orders)


def test_tickets_that_a_policy_binds_have_their_orders_withdrawn() -> None:
    router = held_pool()
    (order,) = router.take_prefetch(0.0).orders
    policy = RoutingPolicy(placement=Stage(name="least_cost"), grant_tokens=1, grant_lookahead_s=0.0)
    router.set_policy(policy, 2, 0.1)
    assert router.unbound(0.1)[0] == 0
    assert order.request_id in router.take_prefetch(0.1).withdrawn
    router.check()
