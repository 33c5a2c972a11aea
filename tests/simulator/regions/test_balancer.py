from __future__ import annotations

import pytest

from routing.regions.locality_offload import LocalityOffload
from routing.regions.region_rule import RegionRule
from routing.regions.skywalker import SkyWalkerRegions
from simulator.regions.balancer import Balancer
from simulator.regions.batch_engine import BatchEngine, BatchEngineProfile, KvMemory
from simulator.regions.network import Network, network
from simulator.regions.prompt import EMPTY, PromptSegment
from simulator.regions.push_limits import BLIND, PENDING, PushLimit
from simulator.regions.region_request import RegionRequest
from simulator.virtual_clock import VirtualClock


def request(number: int, tokens: int = 500) -> RegionRequest:
    return RegionRequest(EMPTY.then(PromptSegment(number, tokens)), PromptSegment(1000 + number, 100), number, "us")


class Regions:
    """A balancer and an engine in each of two regions."""

    def __init__(self, rule: RegionRule, ways: Network | None = None) -> None:
        self.clock, self.ways = VirtualClock(), ways or network()
        self.balancers = [Balancer(region, rule, PENDING, self.clock, self.ways) for region in ("us", "eu")]
        for balancer, other in (self.balancers, reversed(self.balancers)):
            memory = KvMemory(30_000)
            balancer.join(BatchEngine("e", balancer.region, self.clock, memory, BatchEngineProfile(), balancer.ended))
            balancer.meet(other)

    def say_pending(self, pending: int, *indices: int) -> None:
        """Let the probes of these balancers report pending requests at their engine."""
        for index in indices:
            self.balancers[index].engines[0].pending = pending


def test_the_queue_head_blocks_skywalker_and_is_overtaken_in_our_rule() -> None:
    for rule, left in ((SkyWalkerRegions(), 2), (LocalityOffload(), 1)):
        regions = Regions(rule)
        us = regions.balancers[0]
        us.join(BatchEngine("f", "us", regions.clock, KvMemory(30_000), BatchEngineProfile(), us.ended))
        held, fresh = request(1), request(2)
        us.engines[0].index.add(held.prompt)
        regions.say_pending(1, 0)
        us.engines[1].pending = 1
        us.arrive(held)
        us.arrive(fresh)
        assert len(us.queue) == 2
        us.engines[1].pending = 0 if left == 1 else 1
        us._scan()
        assert len(us.queue) == left


def test_a_full_region_forwards_once_another_reports_room() -> None:
    regions = Regions(SkyWalkerRegions())
    us, eu = regions.balancers
    regions.say_pending(1, 0)
    asked = request(1)
    us.arrive(asked)
    assert list(us.queue) == [asked]
    eu._beat()
    regions.clock.run(0.044)
    assert us.queue
    regions.clock.run(0.046)
    assert (not us.queue, asked.hops) == (True, 1)


def test_a_forwarded_request_is_not_forwarded_again() -> None:
    regions = Regions(SkyWalkerRegions())
    us, eu = regions.balancers
    asked = request(1)
    asked.hops = 1
    us._beat()
    regions.clock.run(0.05)
    regions.say_pending(1, 1)
    eu.arrive(asked)
    assert list(eu.queue) == [asked]


def test_a_region_whose_queue_exceeds_the_buffer_receives_nothing() -> None:
    regions = Regions(SkyWalkerRegions())
    us, eu = regions.balancers
    regions.say_pending(1, 0)
    eu.queue.extend(request(number) for number in range(5))
    eu._beat()
    regions.clock.run(0.05)
    us.arrive(request(9))
    assert len(us.queue) == 1


def test_heartbeats_use_the_one_way_delay_of_their_sender() -> None:
    ways = network().one_way_s | {("eu", "us"): 0.3}
    regions = Regions(SkyWalkerRegions(), Network(ways))
    us, eu = regions.balancers
    us._beat()
    eu._beat()
    regions.clock.run(0.05)
    assert (eu.peers[0].has_room, us.peers[0].has_room) == (True, False)
    regions.clock.run(0.31)
    assert us.peers[0].has_room


def test_own_forwards_count_until_a_heartbeat_can_include_them() -> None:
    regions = Regions(LocalityOffload())
    us, eu = regions.balancers
    eu._beat()
    regions.clock.run(0.05)
    regions.say_pending(1, 0)
    us.arrive(request(1))
    assert us.peers[0].load(request(2)).in_flight_per_engine == 1
    eu._beat()
    regions.clock.run(0.1)
    assert (us.peers[0].load(request(2)).in_flight_per_engine, len(us.peers[0].forwarded)) == (1, 1)
    eu._beat()
    regions.clock.run(0.15)
    assert (us.peers[0].load(request(2)).in_flight_per_engine, len(us.peers[0].forwarded)) == (1, 0)


@pytest.mark.parametrize(
    ("limit", "pending", "in_flight", "room"),
    [
        (BLIND, 9, 99, True),
        (PENDING, 0, 99, True),
        (PENDING, 1, 0, False),
        (PushLimit("in_flight", 16), 9, 15, True),
        (PushLimit("in_flight", 16), 0, 16, False),
    ],
)
def test_an_engine_has_room_below_its_limits(limit: PushLimit, pending: int, in_flight: int, room: bool) -> None:
    assert limit.has_room(pending, in_flight) is room
