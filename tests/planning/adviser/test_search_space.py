import random

import pytest

from planning.adviser.search_space import Dimension, point_of, policy_at, search_space, starting_points
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import PLACEMENTS, stage_problems

LIVE = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"), starvation_limit_s=90.0)


def random_point(space: tuple[Dimension, ...], rng: random.Random) -> dict:
    point: dict = {}
    for item in space:
        if item.applies(point):
            number = rng.randint(int(item.low), int(item.high)) if item.whole else rng.uniform(item.low, item.high)
            point[item.path] = rng.choice(item.choices) if item.choices else number
    return point


def test_every_point_is_a_valid_policy_with_these_values() -> None:
    space, rng = search_space(LIVE), random.Random(5)
    for _ in range(300):
        point = random_point(space, rng)
        policy = policy_at(point, LIVE)
        assert stage_problems(policy) == []
        assert point_of(policy, space) == point


def test_the_search_starts_with_every_placement_and_the_live_settings() -> None:
    space = search_space(LIVE)
    points = starting_points(LIVE, space)
    assert {point["placement.name"] for point in points} == set(PLACEMENTS)
    assert point_of(LIVE, space) in points
    assert {point["starvation_limit_s"] for point in points} == {90.0}
    assert [point_of(policy_at(point, LIVE), space) for point in points] == points


def test_ranges_are_the_usual_ones_and_include_the_live_value() -> None:
    ranges = {item.key: (item.low, item.high) for item in search_space(LIVE)}
    assert ranges["placement.params.beta if placement.name in least_cost"] == (4, 12)
    assert ranges["starvation_limit_s"] == (0, 90)


def test_settings_without_effect_are_absent() -> None:
    point = point_of(RoutingPolicy(), search_space(RoutingPolicy()))
    assert "dispatch_limit.in_flight_limit" not in point
    assert "admission.threshold" not in point
    assert "placement.params.beta" in point


def test_another_rule_keeps_no_parameter_of_the_old_one() -> None:
    live = RoutingPolicy(placement=Stage(name="consistent_hash", params={"load_bound": 1.5}))
    point = {**point_of(live, search_space(live)), "placement.name": "round_robin"}
    del point["placement.params.load_bound"], point["placement.params.key_blocks"]
    assert policy_at(point, live).placement == Stage(name="round_robin")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_policy_is_found_again_from_its_own_point(placement: str) -> None:
    order = "late_binding" if placement == "central" else "edf"
    live = RoutingPolicy(placement=Stage(name=placement), order=Stage(name=order))
    space = search_space(live)
    assert point_of(policy_at(point_of(live, space), live), space) == point_of(live, space)
