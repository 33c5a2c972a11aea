"""The contract of every region rule, with random views."""

from __future__ import annotations

from random import Random

import pytest

from routing.regions.locality_offload import LocalityOffload
from routing.regions.region_rule import RegionRule
from routing.regions.region_view import WAIT, RegionView
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
