"""Gateways of two regions under the virtual clock, with the production chain."""

from __future__ import annotations

from inspect import signature
from itertools import pairwise

import pytest

from gateway.pools.engines.prober import WAITING_EVERY, probe_engines
from routing.regions.sovereignty import ALLOW_ALL, SovereigntyDocument
from simulator.engine_models.chunked import ChunkedEngine
from simulator.link import Link
from simulator.regions.hosted_engine import HostedEngine
from simulator.regions.network import RegionNetwork, links
from simulator.regions.policies import POLICIES, PUBLISHED_REPORT_S, REPORT_S
from simulator.regions.region_request import EMPTY, PromptSegment, RegionRequest
from simulator.regions.region_run import RegionRun, RegionSpec, engine_profile
from simulator.regions.simulated_gateway import SimulatedGateway
from simulator.virtual_clock import VirtualClock

PROFILE = engine_profile(30_000, 1.0)


def request(number: int, tokens: int = 500) -> RegionRequest:
    prompt = EMPTY.then(PromptSegment(number, tokens))
    return RegionRequest(prompt, PromptSegment(1000 + number, 100), number, "us", request_id=str(number))


class Regions:
    """A gateway in each of two regions, with `engines` engines; their clocks start at 0."""

    def __init__(
        self,
        policy: str,
        *,
        engines: int = 1,
        ways: dict[tuple[str, str], Link] | None = None,
        loss: float = 0.0,
    ) -> None:
        self.clock = VirtualClock()
        self.answered: list[RegionRequest] = []
        self.gateways = [
            SimulatedGateway(
                region,
                POLICIES[policy],
                PROFILE,
                [HostedEngine(f"{at} {region}", region, ChunkedEngine(PROFILE), self.clock) for at in range(engines)],
                self.clock,
                RegionNetwork(self.clock, ways or links(), loss=loss),
                sovereignty=ALLOW_ALL,
                answered=self.answered.append,
            )
            for region in ("us", "eu")
        ]
        for gateway, other in (self.gateways, reversed(self.gateways)):
            gateway.meet([other])

    def start(self) -> None:
        for gateway in self.gateways:
            gateway.start(0.0)

    def report_pending(self, pending: int, *regions: int) -> None:
        """Let the engines of these regions report requests that have not started, and keep one of ours there."""
        for at in regions:
            gateway = self.gateways[at]
            for engine_id in gateway.engines:
                gateway.router.report(engine_id, pending, self.clock.now)


def filled(regions: Regions, *at: int) -> None:
    """Give each engine of these regions a request in prefill, and let it report another one as pending."""
    for region in at:
        gateway = regions.gateways[region]
        for number, _ in enumerate(gateway.engines):
            gateway.arrive(request(900 + 10 * region + number, 1000))
    regions.report_pending(1, *at)


def test_the_queue_head_blocks_skywalker_and_is_overtaken_in_our_queues() -> None:
    for policy, left in (("skywalker", 2), ("ours", 1)):
        regions = Regions(policy, engines=2)
        us = regions.gateways[0]
        held, fresh = request(1), request(2)
        first, second = us.engines
        us.router.blocks_stored(first, held.prompt.keys)
        filled(regions, 0)
        us.arrive(held)
        us.arrive(fresh)
        assert len(us.router.waiting) == 2
        if policy == "ours":
            us._carry_out(us.router.report(second, 0, regions.clock.now))
        assert len(us.router.waiting) == left, policy


def test_a_full_region_forwards_once_another_reports_room() -> None:
    regions = Regions("skywalker")
    us = regions.gateways[0]
    filled(regions, 0)
    asked = request(1)
    us.arrive(asked)
    assert len(us.router.waiting) == 1
    us.start(0.0)
    # A call and its heartbeat take 45 ms each.
    regions.clock.run(0.089)
    assert us.router.waiting
    regions.clock.run(0.091)
    assert not us.router.waiting
    regions.clock.run(0.14)
    assert (asked.hops, asked.served_region) == (1, "eu")


def test_a_forwarded_request_is_not_forwarded_again() -> None:
    regions = Regions("skywalker")
    us, eu = regions.gateways
    regions.start()
    regions.clock.run(0.2)
    filled(regions, 1)
    asked = request(1)
    eu.receive(asked, us, "default")
    assert len(eu.router.waiting) == 1
    assert asked.hops == 1


def test_a_region_whose_queue_exceeds_the_buffer_receives_nothing() -> None:
    for queued, hops in ((4, 1), (5, 0)):
        regions = Regions("skywalker", engines=2)
        us, eu = regions.gateways
        filled(regions, 0, 1)
        for number in range(queued):
            eu.arrive(request(100 + number))
        # One of two engines has room, for the head of the queue.
        eu.router.report(next(iter(eu.engines)), 0, 0.0)
        us.start(0.0)
        asked = request(1)
        us.arrive(asked)
        regions.clock.run(0.14)
        assert asked.hops == hops, queued


def test_heartbeats_take_both_ways_and_probes_the_way_to_the_engine() -> None:
    regions = Regions("skywalker", ways=links() | {("eu", "us"): Link(latency_s=0.3)})
    us, eu = regions.gateways
    regions.start()
    regions.clock.run(0.34)
    assert (us.serving("model", 0.34), eu.serving("model", 0.34)) == ({}, {})
    regions.clock.run(0.346)
    assert us.serving("model", 0.346).keys() == {"eu"}
    assert eu.serving("model", 0.346).keys() == {"us"}
    assert eu.router.limit.reports


def test_engines_report_their_queue_to_our_gateways_as_seldom_as_to_live_ones() -> None:
    light_s = signature(probe_engines).parameters["light_interval_s"].default
    assert pytest.approx(light_s * WAITING_EVERY) == REPORT_S
    for policy, every_s in (("ours", REPORT_S), ("skywalker", PUBLISHED_REPORT_S)):
        regions = Regions(policy)
        us = regions.gateways[0]
        us.start(0.0)
        times = set[float]()
        for step in range(200):
            regions.clock.run(step / 100 + 0.005)
            times.update(report.at_s for report in us.router.limit.reports.values())
        gaps = [later - earlier for earlier, later in pairwise(sorted(times))]
        assert gaps == pytest.approx([every_s] * (round(2.0 / every_s) - 1)), policy


def test_own_forwards_count_until_a_heartbeat_can_include_them() -> None:
    regions = Regions("skywalker")
    us = regions.gateways[0]
    us.start(0.0)
    regions.clock.run(0.095)
    filled(regions, 0)
    us.arrive(request(1))
    peer = us.gateways["eu"]
    assert peer.untold("eu") == 1
    # The heartbeat called before the forward does not count it.
    regions.clock.run(0.15)
    assert peer.untold("eu") == 1
    regions.clock.run(0.295)
    assert peer.untold("eu") == 0


def test_our_heartbeats_carry_prefixes_and_every_gateway_remembers_its_forwards() -> None:
    for policy, published in (("ours", True), ("ours_unpublished", False), ("skywalker", False)):
        regions = Regions(policy)
        us, eu = regions.gateways
        regions.start()
        regions.clock.run(0.2)
        forwarded, served = request(1), request(2)
        eu.arrive(served)
        filled(regions, 0)
        us.arrive(forwarded)
        regions.clock.run(1.0)
        peer = us.gateways["eu"]
        assert forwarded.hops == 1, policy
        assert peer.matched_blocks("eu", forwarded.prompt.keys) == len(forwarded.prompt.keys), policy
        assert peer.matched_blocks("eu", served.prompt.keys) == len(served.prompt.keys) * published, policy


def test_a_request_larger_than_an_engine_ends_with_an_error() -> None:
    regions = Regions("ours")
    us = regions.gateways[0]
    asked = request(1, 40_000)
    us.arrive(asked)
    regions.clock.run(1.0)
    assert regions.answered == [asked]
    assert (asked.first_token_s, us.open_requests, len(us.router.reservations)) == (None, 0, 0)


def test_lost_messages_delay_requests_and_lose_none() -> None:
    regions = Regions("skywalker", loss=0.5)
    us = regions.gateways[0]
    regions.start()
    regions.clock.run(3.0)
    asked = [request(number, 3000) for number in range(40)]
    for at, item in enumerate(asked):
        regions.clock.after(0.3 * at, us.arrive, item)
    regions.clock.run(600.0)
    assert len(regions.answered) == 40
    assert any(item.hops for item in asked)
    for gateway in regions.gateways:
        gateway.check()
        assert gateway.open_requests == 0


def test_a_forward_that_the_other_region_rejects_is_decided_again() -> None:
    regions = Regions("skywalker")
    us, eu = regions.gateways
    regions.start()
    regions.clock.run(0.2)
    filled(regions, 0)
    # The other region's engine has gone since its heartbeat.
    eu.router.set_engines([], 0.2)
    asked = request(1)
    us.arrive(asked)
    regions.clock.run(0.25)
    assert (asked.hops, eu.open_requests) == (1, 1)
    regions.clock.run(60.0)
    assert (asked.hops, asked.served_region, eu.open_requests) == (0, "us", 0)
    assert asked.first_token_s is not None
    assert asked.way_back_s == 0.001


def test_a_region_without_engines_forwards_what_its_rules_allow() -> None:
    allowed, denied = (
        RegionRun(
            RegionSpec(
                "arena",
                "skywalker",
                clients=(0, 10, 0),
                replicas=(2, 0, 0),
                duration_s=30.0,
                warmup_s=0.0,
                sovereignty=SovereigntyDocument(default=default),
            )
        )
        for default in ("allow", "deny")
    )
    assert allowed.run().crossed_share == 1.0
    assert denied.run().unanswered == len(denied.requests) > 0
