from random import Random

from hypothesis import given
from hypothesis import strategies as st

from routing.placements.least_cost import FEW_OF, LeastCost
from tests.routing.pools import engine_of, pool, request

LONG = range(20)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 30)), min_size=1, max_size=10),
    st.floats(0.5, 20),
)
def test_it_finds_the_minimum_over_all_engines(loads: list[tuple[int, float]], beta: float) -> None:
    router, asked = pool(size=len(loads)), request(1, LONG)
    for target, (held, ready_at) in enumerate(loads):
        router.blocks_stored(router.view.roster.engine_ids[target], asked.keys[:held])
        router.view.load.ready_at[target] = ready_at
    choice = LeastCost(beta=beta).choose(asked, router.view, 0.0, Random(1))
    costs = [
        ready_at + beta * router.view.compute_s(asked, target, held * 512)
        for target, (held, ready_at) in enumerate(loads)
    ]
    holds = [held for held, _ in loads if held]
    if holds and (len(loads) - len(holds)) * FEW_OF <= len(loads):
        shared_s = router.view.compute_s(asked, 0, 0) - router.view.compute_s(asked, 0, 512 * min(holds))
        for target, (held, ready_at) in enumerate(loads):
            costs[target] -= (beta - 1) * shared_s if not held and ready_at == 0.0 else 0.0
    assert abs(costs[choice.target] - min(costs)) < 1e-9
    assert choice.candidates[0].cost == costs[choice.target]


def test_compute_weighs_more_than_waiting_so_a_hit_is_worth_waiting_for() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.view.load.ready_at[0] = 3.0
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 0
    assert LeastCost(beta=1.0).choose(asked, router.view, 0.0, Random(1)).target == 1


def test_a_blind_index_earns_no_hits() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.view.roster.trusts[0] = 0.0
    router.view.load.ready_at[0] = 0.1
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 1


def test_an_idle_engine_that_lost_what_all_others_hold_is_fed_before_they_queue_for_long() -> None:
    router, shared = pool(size=4), range(4)
    for engine_id in ("e-01", "e-02", "e-04"):
        router.blocks_stored(engine_id, request(0, shared).keys)
    shared_s = router.view.compute_s(request(0, shared), 0, 0)
    waits = []
    for number in range(12):
        # A beginning that all share and an end of its own, faster than three engines compute them.
        asked = request(number, (*shared, *range(100 * number + 100, 100 * number + 108)), at=number * 0.1)
        dispatched = router.submit(asked, asked.arrived_s, hold=False)
        if engine_of(dispatched) == "e-03":
            break
        waits.append(dispatched.decision.wait_s)  # type: ignore[union-attr]
    assert len(waits) < 12
    assert max(waits) < 2 * shared_s


def test_what_few_engines_hold_stays_there() -> None:
    router, asked = pool(size=4), request(1, LONG)
    for engine_id in ("e-01", "e-02"):
        router.blocks_stored(engine_id, asked.keys)
        router.view.load.ready_at[router.view.roster.engine_ids.index(engine_id)] = 3.0
    assert router.view.roster.engine_ids[LeastCost().choose(asked, router.view, 0.0, Random(1)).target] in (
        "e-01",
        "e-02",
    )


def test_an_engine_that_has_work_is_not_asked_to_compute_again_what_others_hold() -> None:
    router, asked = pool(size=4), request(1, LONG)
    for target, engine_id in enumerate(router.view.roster.engine_ids[:3]):
        router.blocks_stored(engine_id, asked.keys)
        router.view.load.ready_at[target] = 3.0
    router.view.load.in_flight_requests[3] = 1
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target != 3
    router.view.load.in_flight_requests[3] = 0
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 3
