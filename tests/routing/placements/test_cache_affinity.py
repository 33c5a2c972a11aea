from routing.placements.cache_affinity import CacheAffinity
from tests.routing.pools import busy, chosen_by, pool, request


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
