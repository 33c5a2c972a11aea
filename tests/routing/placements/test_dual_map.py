from random import Random
from typing import Literal

import pytest

from routing.placements.dual_map import DualMap
from routing.rings.affinity_key import affinity_key
from routing.router import Router
from routing.values import reasons
from routing.values.inference_request import InferenceRequest
from tests.routing.pools import choice_of, pool, request

LONG = range(20)


def pair_of(router: Router, asked: InferenceRequest) -> list[int]:
    view = router.view
    return list(DualMap()._build(view)[affinity_key(asked, 2)][0])


def choose(router: Router, asked: InferenceRequest, now: float = 0.0) -> tuple[int, str]:
    choice = DualMap().choose(asked, router.view, now, Random(1))
    return choice.target, choice.reason


def test_a_prefix_stays_on_its_two_engines() -> None:
    router = pool("dual_map", size=16)
    chosen = set()
    for number in range(60):
        asked = request(number, [1, 2, 1000 + number], at=number * 0.2)
        router.place(asked, number * 0.2, hold=False)
        chosen.add(choose(router, asked)[0])
    assert chosen == set(pair_of(router, request(99, [1, 2])))


def test_the_longer_match_is_preferred_within_the_slo() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    holder = pair_of(router, asked)[1]
    router.blocks_stored(router.view.roster.engine_ids[holder], asked.keys)
    assert choose(router, asked) == (holder, reasons.LONGEST_MATCH)


def test_equal_matches_go_to_the_less_loaded_engine() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    first, second = pair_of(router, asked)
    router.view.load.in_flight_tokens[first] = 100
    assert choose(router, asked) == (second, reasons.EQUAL_MATCH)


def test_the_less_loaded_engine_is_used_when_the_slo_would_be_missed() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    holder, other = pair_of(router, asked)
    router.blocks_stored(router.view.roster.engine_ids[holder], asked.keys)
    router.view.load.in_flight_tokens[holder] = 90_000
    router.view.load.ready_at[holder] = 5.1
    assert choose(router, asked) == (other, reasons.SLO_SWITCH)


Selection = Literal["slo", "affinity", "least_loaded", "min_ttft"]


@pytest.mark.parametrize(
    ("selection", "wait_s", "takes_holder"),
    [
        ("affinity", 60.0, True),
        ("least_loaded", 0.0, False),
        ("min_ttft", 0.8, True),
        ("min_ttft", 1.0, False),
        ("slo", 4.9, True),
        ("slo", 5.0, False),
    ],
)
def test_each_selection_rule_weighs_match_load_and_time_differently(
    selection: Selection, wait_s: float, takes_holder: bool
) -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    holder, other = pair_of(router, asked)
    router.blocks_stored(router.view.roster.engine_ids[holder], asked.keys)
    router.view.load.in_flight_tokens[holder] = 1000
    router.view.load.ready_at[holder] = wait_s
    choice = choice_of(router, DualMap(selection=selection), asked)
    assert choice.target == (holder if takes_holder else other)


def test_the_longest_match_wins_among_more_than_two_candidates() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    four = DualMap(d=4)
    candidates = four._build(router.view)[affinity_key(asked, 2)][0]
    assert len(candidates) == 4
    for position, blocks in zip(candidates, (3, 9, 9, 5), strict=True):
        router.blocks_stored(router.view.roster.engine_ids[position], asked.keys[:blocks])
    router.view.load.in_flight_tokens[candidates[1]] = 10
    choice = choice_of(router, four, asked)
    assert (choice.target, choice.reason) == (candidates[2], reasons.LONGEST_MATCH)


def test_a_single_candidate_is_plain_affinity() -> None:
    router, asked = pool("dual_map", size=8), request(1, LONG)
    choice = choice_of(router, DualMap(d=1), asked)
    assert (choice.target, choice.reason) == (pair_of(router, asked)[0], reasons.ONLY_ENGINE)
