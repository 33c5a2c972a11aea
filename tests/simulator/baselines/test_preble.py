from routing.values import reasons
from simulator.baselines.preble import Preble
from tests.routing.pools import busy, choice_of, chosen_by, pool, request

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
