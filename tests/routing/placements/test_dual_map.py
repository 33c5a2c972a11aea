from random import Random

from routing import reasons
from routing.placements.dual_map import DualMap
from tests.routing.pools import pool, request

LONG = range(20)


def pair_of(router: object, asked: object) -> list[int]:
    return list(DualMap()._pair(asked, router.view))  # type: ignore[attr-defined, arg-type]


def choose(router: object, asked: object, now: float = 0.0) -> tuple[int, str]:
    choice = DualMap().choose(asked, router.view, now, Random(1))  # type: ignore[attr-defined, arg-type]
    return choice.target, choice.reason


def test_it_keeps_a_prefix_on_its_two_engines() -> None:
    router = pool("dual_map", size=16)
    chosen = set()
    for number in range(60):
        asked = request(number, [1, 2, 1000 + number], at=number * 0.2)
        router.submit(asked, number * 0.2, hold=False)
        chosen.add(choose(router, asked)[0])
    assert chosen == set(pair_of(router, request(99, [1, 2])))


def test_it_prefers_the_longer_match_within_the_slo() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    holder = pair_of(router, asked)[1]
    router.blocks_stored(router.view.engine_ids[holder], asked.keys)
    assert choose(router, asked) == (holder, reasons.LONGEST_MATCH)


def test_it_takes_the_less_loaded_of_equal_matches() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    first, second = pair_of(router, asked)
    router.view.outstanding_tokens[first] = 100
    assert choose(router, asked) == (second, reasons.EQUAL_MATCH)


def test_it_switches_to_the_less_loaded_one_when_the_slo_would_be_missed() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    holder, other = pair_of(router, asked)
    router.blocks_stored(router.view.engine_ids[holder], asked.keys)
    router.view.outstanding_tokens[holder] = 90_000
    router.view.ready_at[holder] = 5.1
    assert choose(router, asked) == (other, reasons.SLO_SWITCH)
