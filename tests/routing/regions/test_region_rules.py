"""The contract of every region rule, with random views.

The region rules that a policy can name.
"""

from __future__ import annotations

from random import Random
from typing import get_args, get_type_hints

import pytest

from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy
from routing.regions.locality_offload import LocalityOffload
from routing.regions.region_rule import RegionRule
from routing.regions.region_view import WAIT, RegionView
from routing.regions.registry import REGION_LOCAL, REGION_RULES, build_region_rule
from routing.regions.skywalker import SkyWalkerRegions
from routing.regions.skywalker_ch import SkyWalkerCh
from simulator.regions.baselines import LeastLoad, RoundRobinRegions, SglangCacheAwareRegions
from tests.routing.regions.views import engine, peer, view

RULES = [
    LocalityOffload(),
    SkyWalkerRegions(),
    SkyWalkerCh(),
    RoundRobinRegions(),
    LeastLoad(),
    SglangCacheAwareRegions(),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)


def random_view(rng: Random) -> RegionView:
    engines = [
        engine(at, matched=rng.randrange(1000), in_flight=rng.randrange(40), room=rng.random() < 0.4)
        for at in range(rng.randint(1, 6))
    ]
    peers = [
        peer(name, matched=rng.randrange(1000), load=rng.random() * 40, room=rng.random() < 0.5)
        for name in ("eu", "asia")[: rng.randrange(3)]
    ]
    return view(*engines, peers=tuple(peers), waited=rng.random() * 6, load=rng.random() * 40, turn=rng.randrange(9))


@every_rule
def test_only_targets_with_room_are_chosen_and_the_choice_is_repeatable(rule: RegionRule) -> None:
    rng = Random(5)
    for _ in range(500):
        asked = random_view(rng)
        choice = rule.choose(asked)
        assert choice == rule.choose(asked)
        assert choice.engine is None or asked.engines[choice.engine].has_room
        assert choice.peer is None or asked.peers[choice.peer].has_room
        assert choice.engine is None or choice.peer is None


@every_rule
def test_without_peers_and_room_a_request_waits(rule: RegionRule) -> None:
    assert rule.choose(view(engine(1, room=False), engine(2, room=False), waited=60.0)) == WAIT


@every_rule
def test_an_only_engine_with_room_gets_the_request(rule: RegionRule) -> None:
    assert rule.choose(view(engine(1))).engine == 0


def test_the_policy_accepts_exactly_the_rules_of_the_table() -> None:
    named = get_args(get_type_hints(RoutingPolicy)["region_rule"])
    assert set(named) == {*REGION_RULES, REGION_LOCAL}


def test_region_local_forwards_nothing() -> None:
    assert build_region_rule(RoutingPolicy(region_rule="region_local")) is None


def test_our_rule_weighs_by_the_pools_own_prefill_cost() -> None:
    studied = LocalityOffload()
    slow = RoutingPolicy(prefill_cost=PrefillCostDocument(per_token_s=studied.prefill_s_per_token))
    rule = build_region_rule(slow)
    assert isinstance(rule, LocalityOffload)
    assert rule.in_flight_s == pytest.approx(studied.in_flight_s)
    fast = build_region_rule(RoutingPolicy(prefill_cost=PrefillCostDocument(per_token_s=1e-4)))
    assert isinstance(fast, LocalityOffload)
    assert fast.in_flight_s / fast.prefill_s_per_token == pytest.approx(
        studied.in_flight_s / studied.prefill_s_per_token
    )


def chosen(asked: RegionView) -> tuple[str, int | None, int | None]:
    choice = LocalityOffload().choose(asked)
    return choice.reason, choice.engine, choice.peer


def test_lost_cache_and_load_are_weighed_in_seconds() -> None:
    """1,000 tokens save 0.547 s, which 13 requests in flight (0.52 s) do not outweigh and 14 (0.56 s) do."""
    holder = 1000
    assert chosen(view(engine(1, matched=holder, in_flight=13), engine(2)))[1] == 0
    assert chosen(view(engine(1, matched=holder, in_flight=14), engine(2)))[1] == 1


@pytest.mark.parametrize(("matched", "patience_s"), [(1000, 4.0), (274, 2.0), (0, 0.0)])
def test_a_request_waits_for_a_full_home_as_long_as_that_is_faster(matched: int, patience_s: float) -> None:
    engines = (engine(1, matched=matched, room=False), engine(2))
    if patience_s:
        assert chosen(view(*engines, waited=patience_s - 0.1))[0] == "wait"
    assert chosen(view(*engines, waited=patience_s + 0.1))[:2] == ("patience_over", 1)


def test_an_idler_region_gets_low_loss_requests_before_the_own_region_is_full() -> None:
    local = engine(1, matched=90, in_flight=15)
    idler, busier = peer("eu", load=9.0), peer("eu", load=9.1)
    assert chosen(view(local, peers=(idler,), load=15.0)) == ("early_offload", None, 0)
    assert chosen(view(local, peers=(busier,), load=15.0)) == ("least_cost", 0, None)
    assert chosen(view(engine(1, matched=500), peers=(idler,), load=15.0)) == ("least_cost", 0, None)


def test_the_margin_grows_with_distance() -> None:
    far = peer("asia", load=9.0, one_way=0.1)
    assert chosen(view(engine(1), peers=(far,), load=15.0))[0] == "least_cost"


def test_engines_with_ample_room_keep_their_requests() -> None:
    """Their first tokens are sooner than a round trip (P90 of TTFT against SkyWalker's)."""
    idle = peer("eu", load=0.0)
    assert chosen(view(engine(1), peers=(idle,), load=14.9))[0] == "least_cost"
    assert chosen(view(engine(1), peers=(idle,), load=15.0))[0] == "early_offload"


def test_a_session_follows_its_cache_to_another_region_unless_that_is_much_busier() -> None:
    holder = peer("eu", matched=800, load=12.0)
    assert chosen(view(engine(1, matched=100), peers=(holder,), load=4.0)) == ("session_region", None, 0)
    assert chosen(view(engine(1, matched=100), peers=(holder,), load=1.0))[1:] == (0, None)


def test_a_full_region_forwards_low_loss_requests_immediately_and_others_later() -> None:
    full, cold = engine(1, matched=1000, room=False), peer("eu", load=9.0)
    assert chosen(view(engine(1, room=False), peers=(cold,)))[0] == "no_local_room"
    assert chosen(view(full, peers=(cold,), waited=3.9))[0] == "wait"
    assert chosen(view(full, peers=(cold,), waited=4.1)) == ("no_local_room", None, 0)


def test_the_longest_match_among_engines_with_room_is_chosen() -> None:
    choice = SkyWalkerRegions().choose(
        view(engine(1, matched=600), engine(2, matched=700), engine(3, matched=900, room=False))
    )
    assert (choice.engine, choice.reason) == (1, "longest_match")


def test_a_prefix_that_all_requests_share_does_not_send_all_to_the_first_engine() -> None:
    choice = SkyWalkerRegions().choose(view(engine(1, matched=600, in_flight=9), engine(2, matched=600, in_flight=3)))
    assert choice.engine == 1


def test_a_match_below_half_of_the_prompt_is_ignored() -> None:
    choice = SkyWalkerRegions().choose(view(engine(1, matched=499, in_flight=9), engine(2, in_flight=3)))
    assert (choice.engine, choice.reason) == (1, "least_loaded")


def test_a_request_stays_while_any_local_engine_has_room() -> None:
    idle = peer("eu", matched=1000)
    assert SkyWalkerRegions().choose(view(engine(1, in_flight=40), peers=(idle,), load=40.0)).engine == 0


def test_a_full_region_forwards_to_the_longest_match_and_then_to_the_nearest() -> None:
    full = engine(1, matched=900, room=False)
    near, far = peer("eu", one_way=0.04), peer("asia", one_way=0.08)
    assert SkyWalkerRegions().choose(view(full, peers=(far, near))).peer == 1
    assert SkyWalkerRegions().choose(view(full, peers=(near, peer("asia", matched=10, one_way=0.08)))).peer == 1
    assert SkyWalkerRegions().choose(view(full, peers=(peer("eu", room=False),))) == WAIT


def test_a_session_keeps_its_engine_on_the_ring_and_skips_one_without_room() -> None:
    rule, all_free = SkyWalkerCh(), [engine(at) for at in range(4)]
    home = rule.choose(view(*all_free, key=77)).engine
    assert home is not None
    without = [engine(at, room=at != home) for at in range(4)]
    second = rule.choose(view(*without, key=77)).engine
    assert second not in {home, None}
    assert {rule.choose(view(*all_free, key=key)).engine for key in range(40)} == {0, 1, 2, 3}


def test_a_full_region_hashes_the_session_to_a_region_with_room() -> None:
    peers = (peer("eu", room=False), peer("asia"))
    assert SkyWalkerCh().choose(view(engine(1, room=False), peers=peers)).peer == 1
