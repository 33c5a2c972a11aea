import pytest

from routing.values import reasons
from simulator.baselines.other_routers import AibrixPrefix, LlmdWeighted, Preble, ProductionStackLoadAware, RayPrefix
from tests.routing.pools import busy, choice_of, chosen_by, pool, request


def test_the_longest_match_within_the_load_limit_is_chosen() -> None:
    router, asked = pool(size=8), request(1, range(20))
    router.blocks_stored("e-01", asked.keys)
    router.blocks_stored("e-02", asked.keys[:3])
    busy(router, "e-01", requests=9)
    # Mean 1.125, σ 2.98: 9 requests are above 1.125 + 2 × 2.98 = 7.08, so the shorter holder takes it.
    choice = choice_of(router, AibrixPrefix(), asked)
    assert (choice.target, choice.reason) == (1, reasons.LONG_MATCH)
    assert choice_of(router, AibrixPrefix(deviations=3.0), asked).target == 0


def test_uneven_loads_or_no_holder_lead_to_the_engine_with_fewest_requests() -> None:
    router, asked = pool(size=3), request(1, range(20))
    for engine_id, requests in (("e-01", 17), ("e-02", 0), ("e-03", 3)):
        busy(router, engine_id, requests=requests)
    router.blocks_stored("e-03", asked.keys)
    assert choice_of(router, AibrixPrefix(), asked).target == 1
    assert choice_of(router, AibrixPrefix(spread=17), asked).target == 2
    assert choice_of(router, AibrixPrefix(spread=17), request(2, [77])).reason == reasons.FEWEST_REQUESTS


LONG = range(20)


def test_a_match_above_half_of_the_prompt_is_followed_whatever_the_wait() -> None:
    router, asked = pool(size=3), request(1, LONG)
    router.blocks_stored("e-02", asked.keys[:11])
    busy(router, "e-02", wait_s=60.0)
    choice = choice_of(router, Preble(), asked)
    assert (choice.target, choice.reason) == (1, reasons.LONG_MATCH)


def test_a_match_of_half_the_prompt_is_weighed_against_the_wait() -> None:
    router, asked = pool(size=3), request(1, LONG)
    router.blocks_stored("e-02", asked.keys[:10])
    busy(router, "e-02", wait_s=60.0)
    choice = choice_of(router, Preble(), asked)
    assert choice.target != 1
    assert choice.reason == reasons.LEAST_TTFT


def test_among_equal_holders_the_one_with_the_shortest_wait_is_chosen() -> None:
    router, asked = pool(size=3), request(1, LONG)
    for engine_id, wait_s in (("e-01", 2.0), ("e-02", 1.0), ("e-03", 0.0)):
        router.blocks_stored(engine_id, asked.keys if engine_id != "e-03" else asked.keys[:15])
        busy(router, engine_id, wait_s=wait_s)
    assert chosen_by(router, Preble(), asked) == "e-02"


def test_a_match_of_a_tenth_of_the_prompt_is_followed_while_loads_are_even() -> None:
    router, asked = pool(size=3), request(1, range(20))
    router.blocks_stored("e-02", asked.keys[:2])
    busy(router, "e-02", requests=10)
    choice = choice_of(router, RayPrefix(), asked)
    assert (choice.target, choice.reason) == (1, reasons.LONG_MATCH)


def test_with_uneven_loads_the_freer_of_two_drawn_engines_is_chosen() -> None:
    router, asked = pool(size=2), request(1, range(20))
    router.blocks_stored("e-02", asked.keys)
    busy(router, "e-02", requests=11)
    choice = choice_of(router, RayPrefix(), asked)
    assert (choice.target, choice.reason) == (0, reasons.TWO_CHOICES)


def test_an_unknown_prompt_goes_to_the_engine_that_was_sent_fewest_blocks() -> None:
    router = pool(size=2)
    router.place(request(1, range(5)), 0.0, hold=False, excluded=frozenset({"e-02"}))
    choice = choice_of(router, RayPrefix(), request(2, range(50, 70)))
    assert (choice.target, choice.reason) == (1, reasons.SMALLEST_TREE)


def test_the_score_sums_prefix_queue_and_free_cache() -> None:
    router, asked = pool(size=2), request(1, range(20))
    router.blocks_stored("e-01", asked.keys[:10])
    busy(router, "e-01", requests=1)
    busy(router, "e-02", requests=5)
    router.view.load.active_blocks[0] = 500
    best = choice_of(router, LlmdWeighted(kv_blocks=1000), asked).candidates[0]
    # 3 × 0.5 of the prompt + 2 × 1 for the shortest queue + 2 × 0.5 of the cache free.
    assert (best.engine_id, -best.cost) == ("e-01", pytest.approx(4.5))


def test_a_long_queue_outweighs_a_hit() -> None:
    router, asked = pool(size=2), request(1, range(20))
    router.blocks_stored("e-01", asked.keys[:12])
    busy(router, "e-01", requests=3)
    assert chosen_by(router, LlmdWeighted(), asked) == "e-02"
    assert chosen_by(router, LlmdWeighted(queue_weight=1.0), asked) == "e-01"


def test_a_load_twice_the_mean_costs_a_whole_cached_prompt() -> None:
    router, asked = pool(size=3), request(1, range(20))
    router.blocks_stored("e-01", asked.keys[:15])
    for engine_id, requests in (("e-01", 4), ("e-02", 1), ("e-03", 1)):
        busy(router, engine_id, requests=requests)
    # Mean 2: e-01 scores 0.75 − 1, the others 0 − (−0.5).
    best = choice_of(router, ProductionStackLoadAware(), asked).candidates[0]
    assert -best.cost == pytest.approx(0.5)
    assert best.engine_id != "e-01"
    assert chosen_by(router, ProductionStackLoadAware(beta=0.4), asked) == "e-01"
