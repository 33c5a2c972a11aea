from random import Random

from hypothesis import given
from hypothesis import strategies as st

from routing.placements.least_cost import LeastCost
from tests.routing.pools import pool, request

LONG = range(20)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 30)), min_size=1, max_size=10),
    st.floats(0.5, 20),
)
def test_it_finds_the_minimum_over_all_engines(loads: list[tuple[int, float]], beta: float) -> None:
    router, asked = pool(size=len(loads)), request(1, LONG)
    for target, (held, ready_at) in enumerate(loads):
        router.blocks_stored(router.view.engine_ids[target], asked.keys[:held])
        router.view.ready_at[target] = ready_at
    choice = LeastCost(beta=beta).choose(asked, router.view, 0.0, Random(1))
    costs = [
        ready_at + beta * router.view.compute_s(asked, target, held * 512)
        for target, (held, ready_at) in enumerate(loads)
    ]
    assert abs(costs[choice.target] - min(costs)) < 1e-9
    assert choice.candidates[0].cost == costs[choice.target]


def test_compute_weighs_more_than_waiting_so_a_hit_is_worth_waiting_for() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.view.ready_at[0] = 3.0
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 0
    assert LeastCost(beta=1.0).choose(asked, router.view, 0.0, Random(1)).target == 1


def test_a_blind_index_earns_no_hits() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    router.view.trusts[0] = 0.0
    router.view.ready_at[0] = 0.1
    assert LeastCost().choose(asked, router.view, 0.0, Random(1)).target == 1
