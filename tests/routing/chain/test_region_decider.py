"""A request stays in its region, leaves it at once or while it waits, and comes back if no other region takes it.

The router's report of its engines to region rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from routing.chain.decider import Decider
from routing.chain.region_decider import RegionDecider
from routing.chain.region_loads import engine_loads, pool_load, pool_load_report
from routing.chain.region_targets import RegionPool, RegionTargets, Serving
from routing.policy.policy_document import RoutingPolicy
from routing.regions.heartbeat import Heartbeat, ServiceFacts
from routing.regions.peer_gateway import PeerGateway
from routing.regions.sovereignty import SovereigntyDocument, SovereigntyRule
from routing.router import Router
from routing.values import reasons
from routing.values.decision import ChainOutcome, Dispatched, Elsewhere, Queued, Rejected
from routing.values.observation import Completed, Failed, FirstToken, ForwardFailed
from tests.routing.pools import BLOCK, engines, pool, request

MODEL = "m"
LONG = range(20)


class KnownPeers:
    """Peers whose heartbeats the test writes."""

    region = "us"

    def __init__(self, *regions: str) -> None:
        self.gateways = {f"{region}=1": PeerGateway(f"{region}=1", region, "") for region in regions}
        self.now = 0.0

    def report(self, region: str, now: float, *, available: int = 1, queued: int = 0, in_flight: int = 0) -> None:
        facts = ServiceFacts(region, MODEL, 1, available, queued, in_flight, 1, True)
        beat = Heartbeat(region * 4, region, now, (facts,), {}, {}, {})
        self.gateways[f"{region}=1"].receive(beat, now, now + 0.1, now)
        self.now = now

    def serving(self, served_model: str, now: float) -> Serving:
        return {
            gateway.region: [(gateway, facts)]
            for gateway in self.gateways.values()
            if gateway.heartbeat is not None and gateway.is_fresh(now)
            for facts in gateway.heartbeat.services
            if facts.served_model == served_model
        }

    def of_region(self, region: str) -> Sequence[PeerGateway]:
        return [gateway for gateway in self.gateways.values() if gateway.region == region]


class Chain:
    """A RegionDecider before a router of one engine."""

    def __init__(self, *regions: str, rule: str = "skywalker", own: str = "us", rules: object = None) -> None:
        self.router = pool(size=1)
        self.policy = msgspec.structs.replace(self.router.policy, region_rule=rule)
        self.peers = KnownPeers(*regions)
        self.own = RegionPool(own, MODEL, self.router)
        self.pools = [self.own]
        targets = RegionTargets(self.peers, lambda _model: self.pools, lambda: rules)  # type: ignore[arg-type, return-value]
        self.decider = RegionDecider(self.router, lambda: self.own, targets, self.policy)

    def fill(self, number: int, now: float = 0.0) -> None:
        """Dispatch one request, whose prefill occupies the engine."""
        assert isinstance(self.decider.place(request(number, LONG), now), Dispatched)


def gone(outcome: ChainOutcome) -> tuple[str, str]:
    assert isinstance(outcome, Elsewhere), outcome
    return outcome.hop.destination, outcome.gateway


def test_the_chain_is_a_decider() -> None:
    links: list[Decider] = [Chain("eu").decider, pool(size=1)]
    assert len(links) == 2


def test_a_region_with_room_keeps_its_requests() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0)
    chain.fill(1)


def test_a_full_region_sends_a_request_to_a_region_with_room() -> None:
    chain = Chain("eu", "asia")
    chain.peers.report("eu", 0.0, available=0)
    chain.peers.report("asia", 0.0)
    chain.fill(1)
    assert gone(chain.decider.place(request(2, LONG), 0.1)) == ("asia", "asia=1")
    assert chain.peers.gateways["asia=1"].untold("asia") == 1


@pytest.mark.parametrize(
    ("fields", "kept"),
    [({"stays": True}, Queued), ({}, Elsewhere)],
)
def test_a_forwarded_request_makes_no_second_hop(fields: dict[str, bool], kept: type) -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0)
    chain.fill(1)
    assert isinstance(chain.decider.place(msgspec.structs.replace(request(2, LONG), **fields), 0.1), kept)


def test_a_retry_and_an_immediate_decision_stay() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0)
    chain.fill(1)
    assert isinstance(chain.decider.place(request(2, LONG), 0.1, hold=False), Dispatched)
    assert not isinstance(chain.decider.place(request(3, LONG), 0.1, excluded=frozenset({"e-01"})), Elsewhere)


def test_a_waiting_request_leaves_at_the_heartbeat_that_reports_room() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0, available=0)
    chain.fill(1)
    assert isinstance(chain.decider.place(request(2, LONG), 0.1), Queued)
    assert chain.decider.heartbeat(0.2) == []
    chain.peers.report("eu", 0.3)
    (outcome,) = chain.decider.heartbeat(0.3)
    assert gone(outcome) == ("eu", "eu=1")
    assert len(chain.router.waiting) == 0, "its queue here knows it no longer"
    chain.decider.check()
    chain.router.check()


def test_only_requests_within_the_lookahead_leave() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0, available=0)
    chain.fill(1)
    for number in (2, 3):
        assert isinstance(chain.decider.place(request(number, LONG), 0.1), Queued)
    chain.peers.report("eu", 0.3)
    assert len(chain.decider.heartbeat(0.3)) == 1
    assert len(chain.router.waiting) == 1


def test_a_request_that_gets_an_engine_waits_for_no_region() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0, available=0)
    chain.fill(1)
    assert isinstance(chain.decider.place(request(2, LONG), 0.1), Queued)
    (outcome,) = chain.decider.observe(FirstToken("request-00000001"), 1.0)
    assert isinstance(outcome, Dispatched)
    chain.peers.report("eu", 1.1)
    assert chain.decider.heartbeat(1.1) == []


def test_a_region_that_does_not_take_the_request_is_asked_once() -> None:
    chain = Chain("eu", "asia")
    chain.peers.report("eu", 0.0)
    chain.peers.report("asia", 0.0)
    chain.fill(1)
    name = "request-00000002"
    first, _ = gone(chain.decider.place(request(2, LONG), 0.1))
    (again,) = chain.decider.observe(ForwardFailed(name), 0.2)
    second, _ = gone(again)
    assert {first, second} == {"eu", "asia"}
    (last,) = chain.decider.observe(ForwardFailed(name), 0.3)
    assert isinstance(last, Queued), "after two regions it stays"
    assert chain.decider.heartbeat(0.4) == []


@pytest.mark.parametrize("end", [Completed, Failed])
def test_the_end_of_a_forwarded_request_is_the_end_of_its_state(end: type[Completed | Failed]) -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0)
    chain.fill(1)
    gone(chain.decider.place(request(2, LONG), 0.1))
    assert chain.decider.observe(FirstToken("request-00000002"), 0.2) == []
    assert chain.decider.observe(end("request-00000002"), 0.3) == []
    assert chain.decider.observe(ForwardFailed("request-00000002"), 0.4) == [], "it is unknown by now"


def test_a_withdrawn_request_leaves_the_queue_and_goes_nowhere() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0, available=0)
    chain.fill(1)
    assert isinstance(chain.decider.place(request(2, LONG), 0.1), Queued)
    assert chain.decider.observe(Failed("request-00000002"), 0.2) == []
    chain.peers.report("eu", 0.3)
    assert chain.decider.heartbeat(0.3) == []
    assert len(chain.router.waiting) == 0


def test_a_request_rejected_for_load_goes_to_another_region() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0)
    chain.router.set_engines([], 0.0)
    assert gone(chain.decider.place(request(1, LONG), 0.0)) == ("eu", "eu=1")


def test_a_request_whose_wait_expires_goes_to_another_region() -> None:
    chain = Chain("eu")
    chain.fill(1)
    asked = request(2, LONG)
    assert isinstance(chain.decider.place(asked, 0.1), Queued)
    chain.peers.report("eu", chain.policy.max_wait_s + 1.0)
    outcomes = chain.decider.tick(chain.policy.max_wait_s + 1.0)
    assert [gone(outcome) for outcome in outcomes if isinstance(outcome, Elsewhere)] == [("eu", "eu=1")]
    assert not any(isinstance(outcome, Rejected) for outcome in outcomes)


def test_a_request_that_no_region_takes_is_rejected_here() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0, available=0)
    chain.peers.gateways["eu=1"].heartbeat_s = -10.0
    chain.fill(1)
    assert isinstance(chain.decider.place(request(2, LONG), 0.1), Queued)
    outcomes = chain.decider.tick(chain.policy.max_wait_s + 1.0)
    assert [outcome.code for outcome in outcomes if isinstance(outcome, Rejected)] == [reasons.WAIT_EXPIRED]


def test_sovereignty_rules_come_before_load() -> None:
    rules = SovereigntyDocument(rules=(SovereigntyRule("at home", tenants=("acme",), allow=False),))
    chain = Chain("eu", rules=rules)
    chain.peers.report("eu", 0.0)
    chain.fill(1)
    mine = msgspec.structs.replace(request(2, LONG), tenant_id="acme")
    assert gone(chain.decider.place(request(3, LONG), 0.1)) == ("eu", "eu=1")
    assert isinstance(chain.decider.place(mine, 0.1), Queued)


def test_another_regions_pool_is_reached_through_its_region() -> None:
    chain = Chain("eu", own="eu")
    chain.router.set_engines([], 0.0)
    chain.pools.clear()
    outcome = chain.decider.place(request(1, LONG), 0.0)
    assert isinstance(outcome, Rejected)
    assert outcome.code == reasons.NO_ENGINE
    chain.peers.report("eu", 0.0)
    assert gone(chain.decider.place(request(2, LONG), 0.0)) == ("eu", "eu=1")


def test_a_region_that_this_gateway_serves_needs_no_other_gateway() -> None:
    chain = Chain("eu")
    adopted = Router("p-2", RoutingPolicy(), 1)
    adopted.set_engines(engines(1), 0.0)
    chain.pools.append(RegionPool("eu", MODEL, adopted))
    chain.fill(1)
    assert gone(chain.decider.place(request(2, LONG), 0.1)) == ("eu", "")


def test_a_changed_policy_changes_the_rule() -> None:
    chain = Chain("eu")
    chain.peers.report("eu", 0.0)
    chain.fill(1)
    chain.decider.adopt(msgspec.structs.replace(chain.policy, region_rule="region_local"))
    assert isinstance(chain.decider.place(request(2, LONG), 0.1), Queued)


def test_the_report_has_room_match_and_work_of_each_engine() -> None:
    router = pool(size=2)
    asked = request(1, LONG)
    router.blocks_stored("e-01", asked.keys[:10])
    loads = {engine_load.engine_id: engine_load for engine_load in engine_loads(router, asked, 0.0)}
    assert loads["e-01"].matched_tokens == 10 * BLOCK
    assert loads["e-02"].matched_tokens == 0
    assert all(load.has_room and load.in_flight == 0 for load in loads.values())


def test_a_prefill_occupies_room_until_its_first_token() -> None:
    router = pool(size=1)
    router.place(request(1, LONG), 0.0)
    assert not engine_loads(router, request(2, LONG), 0.0)[0].has_room
    load = pool_load(router, 0.0)
    assert (load.engines, load.available, load.queued, load.in_flight) == (1, 0, 0, 1)
    router.place(request(2, range(100, 120)), 0.1)
    assert pool_load(router, 0.1).queued == 1
    router.observe(FirstToken("request-00000001"), 0.8)
    router.observe(FirstToken("request-00000002"), 1.8)
    assert pool_load(router, 1.8).available == 1


def test_the_report_of_the_deciding_gateway_replaces_the_local_account() -> None:
    owner, other = pool(size=2), pool(size=2)
    owner.place(request(1, LONG), 0.0)
    report = pool_load_report(owner, 0.0)
    asked = request(2, LONG)
    other.blocks_stored("e-02", asked.keys[:10])
    assert [engine_load.matched_tokens for engine_load in engine_loads(other, asked, 0.0, report)] == [0, 10 * BLOCK]
    loads = {
        engine_load.engine_id: (engine_load.in_flight, engine_load.has_room)
        for engine_load in engine_loads(other, asked, 0.0, report)
    }
    assert loads == {engine.engine_id: (engine.in_flight, engine.has_room) for engine in report.engines}
    assert sorted(loads.values()) == [(0, True), (1, False)]
    assert pool_load(other, 0.0, report) == pool_load(owner, 0.0) != pool_load(other, 0.0)


def test_reading_the_report_changes_nothing() -> None:
    router = pool(size=2)
    router.place(request(1, LONG), 0.0)
    first = engine_loads(router, request(2, LONG), 0.1)
    assert engine_loads(router, request(2, LONG), 0.1) == first
    router.check()
