from collections import Counter
from random import Random

from routing.placements.random_engine import RandomEngine
from tests.routing.pools import pool, request


def test_every_engine_has_an_equal_chance() -> None:
    router, rng = pool(size=4), Random(3)
    drawn = Counter(RandomEngine().choose(request(1), router.view, 0.0, rng).target for _ in range(2000))
    assert set(drawn) == set(router.view.roster.accepting)
    assert min(drawn.values()) > 400
