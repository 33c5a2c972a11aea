from routing.values import reasons
from simulator.baselines.ray_prefix import RayPrefix
from tests.routing.pools import busy, choice_of, pool, request


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
