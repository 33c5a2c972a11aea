from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from simulator.baselines.textbook_rules import CacheAffinity, MinTtft, PowerOfTwo, RandomEngine
from tests.routing.pools import BLOCK, busy, choice_of, chosen_by, pool, request

LONG = range(20)


def test_every_engine_has_an_equal_chance() -> None:
    router, rng = pool(size=4), Random(3)
    drawn = Counter(RandomEngine().choose(request(1), router.view, 0.0, rng).target for _ in range(2000))
    assert set(drawn) == set(router.view.roster.accepting)
    assert min(drawn.values()) > 400


def test_the_fullest_engine_is_never_chosen_and_the_emptiest_most_often() -> None:
    router, rng = pool(size=4), Random(2)
    for number in range(4):
        busy(router, f"e-{number + 1:02}", requests=number)
    drawn = Counter(PowerOfTwo().choose(request(1), router.view, 0.0, rng).target for _ in range(3000))
    # Of six pairs, three hold the emptiest engine, two more the second and one more the third.
    assert [round(6 * drawn[target] / 3000) for target in range(4)] == [3, 2, 1, 0]


def test_equal_prefixes_go_to_one_engine_however_busy_it_is() -> None:
    router = pool(size=16)
    home = chosen_by(router, CacheAffinity(), request(1, [1, 2, 3]))
    busy(router, home, requests=500, wait_s=99.0)
    assert {chosen_by(router, CacheAffinity(), request(number, [1, 2, number])) for number in range(9)} == {home}


def test_prompts_are_distinguished_within_the_key_length() -> None:
    router = pool(size=16)
    asked = [request(number, [1, 2, number]) for number in range(3, 43)]
    assert len({chosen_by(router, CacheAffinity(key_blocks=3), item) for item in asked}) > 8


def test_different_prefixes_spread() -> None:
    router = pool(size=4)
    homes = [chosen_by(router, CacheAffinity(), request(number, [number, 1000 + number])) for number in range(400)]
    assert min(homes.count(home) for home in set(homes)) > 60
    assert len(set(homes)) == 4


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
