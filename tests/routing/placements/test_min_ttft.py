from hypothesis import given
from hypothesis import strategies as st

from routing.placements.min_ttft import MinTtft
from tests.routing.pools import BLOCK, busy, choice_of, chosen_by, pool, request

LONG = range(20)


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 3)), min_size=1, max_size=10))
def test_the_least_wait_plus_compute_over_all_engines_is_chosen(loads: list[tuple[int, float]]) -> None:
    router, asked = pool(size=len(loads)), request(1, LONG)
    for target, (held, ready_at) in enumerate(loads):
        router.blocks_stored(router.view.roster.engine_ids[target], asked.keys[:held])
        router.view.load.ready_at[target] = ready_at
    ttfts = [at + router.view.compute_s(asked, engine, held * BLOCK) for engine, (held, at) in enumerate(loads)]
    choice = choice_of(router, MinTtft(), asked)
    assert abs(ttfts[choice.target] - min(ttfts)) < 1e-9


def test_a_hit_is_worth_only_as_much_waiting_as_it_saves() -> None:
    router, asked = pool(size=2), request(1, LONG)
    router.blocks_stored("e-01", asked.keys)
    # A whole prompt of 10,240 tokens takes 0.934 s, a cached one 0.031 s: 0.903 s of waiting are worth it.
    busy(router, "e-01", wait_s=0.90)
    assert chosen_by(router, MinTtft(), asked) == "e-01"
    busy(router, "e-01", wait_s=0.91)
    assert chosen_by(router, MinTtft(), asked) == "e-02"


def test_idle_engines_without_cached_blocks_share_new_prompts() -> None:
    router = pool(size=4)
    homes = {chosen_by(router, MinTtft(), request(number, [number])) for number in range(40)}
    assert len(homes) == 4
