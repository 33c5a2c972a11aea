from collections import Counter
from random import Random

from routing.placements.power_of_two import PowerOfTwo
from tests.routing.pools import busy, pool, request


def test_the_fullest_engine_is_never_chosen_and_the_emptiest_most_often() -> None:
    router, rng = pool(size=4), Random(2)
    for number in range(4):
        busy(router, f"e-{number + 1:02}", requests=number)
    drawn = Counter(PowerOfTwo().choose(request(1), router.view, 0.0, rng).target for _ in range(3000))
    # Of six pairs, three hold the emptiest engine, two more the second and one more the third.
    assert [round(6 * drawn[target] / 3000) for target in range(4)] == [3, 2, 1, 0]
