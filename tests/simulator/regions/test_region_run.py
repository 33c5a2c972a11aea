from __future__ import annotations

import pytest
from msgspec.structs import replace

from simulator.regions.network import REGIONS, links
from simulator.regions.policies import POLICIES
from simulator.regions.region_run import RegionRun, RegionSpec
from simulator.regions.workloads import WORKLOADS

SHORT = RegionSpec("tot", "ours", seed=7, clients=(8, 3, 3), replicas=(1, 1, 1), duration_s=40.0, warmup_s=5.0)
every_policy = pytest.mark.parametrize("policy", POLICIES)


def drained(spec: RegionSpec) -> RegionRun:
    """Return a run whose clients send nothing after its end, once all their requests have ended."""
    run = RegionRun(spec)
    run.run()
    for client in run.clients:
        client.retire()
    run.clock.run(spec.duration_s + 300.0)
    return run


@every_policy
def test_the_same_seed_produces_the_same_numbers(policy: str) -> None:
    spec = replace(SHORT, policy=policy, duration_s=12.0)
    assert RegionRun(spec).run() == RegionRun(spec).run()


def test_another_seed_produces_other_numbers() -> None:
    assert RegionRun(SHORT).run().tokens_per_s != RegionRun(replace(SHORT, seed=8)).run().tokens_per_s


@every_policy
def test_no_request_is_lost_and_no_count_remains(policy: str) -> None:
    run = drained(replace(SHORT, policy=policy, workload="arena", kv_tokens=8_000))
    assert run.requests
    assert all(request.ended_s is not None for request in run.requests)
    assert sum(engine.produced for engine in run.engines) == sum(request.output.tokens for request in run.requests)
    for engine in run.engines:
        engine.engine.check()
        assert (engine.requests, engine.engine.running, engine.engine.waiting, engine.engine.kv_usage) == ({}, 0, 0, 0)
    for gateway in run.gateways:
        gateway.check()
        assert (gateway.open_requests, len(gateway.router.waiting), len(gateway.router.reservations)) == (0, 0, 0)


@every_policy
def test_no_first_token_arrives_before_network_delay_and_prefill(policy: str) -> None:
    run = RegionRun(replace(SHORT, policy=policy))
    run.run()
    ways = links(0.0 if POLICIES[policy].pooled else 1.0)
    for request in run.requests:
        assert request.hops <= 1
        if request.first_token_s is not None and request.admitted_s is not None:
            entry = run.gateways[0].region if POLICIES[policy].central else request.region
            one_way_s = ways[request.region, entry].latency_s + ways[entry, request.served_region].latency_s
            uncached = request.prompt.tokens - request.cached_tokens
            least_s = 2 * one_way_s + 0.02 + 0.000547 * uncached
            assert request.first_token_s - request.sent_s >= least_s - 1e-9
            assert 0 <= request.cached_tokens < request.prompt.tokens


def test_without_forwarding_no_request_leaves_its_region() -> None:
    report = RegionRun(replace(SHORT, policy="region_local")).run()
    assert report.crossed_share == 0


def test_a_crowded_region_offloads_to_idle_ones() -> None:
    crowded = replace(SHORT, workload="arena", clients=(60, 2, 2))
    local, ours = (RegionRun(replace(crowded, policy=policy)).run() for policy in ("region_local", "ours"))
    assert ours.crossed_share > 0.1
    assert ours.tokens_per_s > local.tokens_per_s


@pytest.mark.parametrize("workload", WORKLOADS)
def test_all_policies_get_the_same_requests(workload: str) -> None:
    asked = []
    for policy in ("ours", "round_robin"):
        run = RegionRun(replace(SHORT, workload=workload, policy=policy))
        run.run()
        mine = [request for request in run.requests if request.client == 0]
        asked.append({(item.session_key, item.position): (item.prompt.tokens, item.output.tokens) for item in mine})
    both = asked[0].keys() & asked[1].keys()
    assert both
    assert all(asked[0][name] == asked[1][name] for name in both)


def test_a_narrow_tree_has_15_requests_and_a_wide_one_85() -> None:
    for workload, size in (("tot", 15), ("mixed", 85)):
        run = RegionRun(replace(SHORT, workload=workload, clients=(1, 0, 0), duration_s=200.0))
        run.run()
        first = run.requests[0].session_key
        assert sum(request.session_key == first for request in run.requests) == size


def test_clients_with_think_time_send_less() -> None:
    quick, slow = (RegionRun(replace(SHORT, workload="arena", think_s=think_s)) for think_s in (0.0, 5.0))
    quick.run()
    slow.run()
    assert len(slow.requests) < len(quick.requests)


def test_longer_network_delays_make_first_tokens_later() -> None:
    near, far = (RegionRun(replace(SHORT, policy="round_robin", rtt_scale=scale)).run() for scale in (0.5, 2.0))
    assert near.ttft_p50_s < far.ttft_p50_s


def test_the_network_delays_are_those_of_the_study() -> None:
    ways = links()
    assert [2 * ways[pair].latency_s for pair in (("us", "eu"), ("us", "asia"), ("asia", "eu"))] == [0.09, 0.16, 0.2]
    assert all(2 * ways[region, region].latency_s == 0.002 for region in REGIONS)


def test_every_unanswered_request_counts_with_its_age() -> None:
    crowded = replace(SHORT, policy="region_local", clients=(60, 0, 0), kv_tokens=8_000)
    report = RegionRun(crowded).run()
    assert report.unanswered > 0
    assert report.ttft_p90_s > 5
