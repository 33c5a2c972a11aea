"""No sovereignty rule is ever broken: random regions, rules and loads under every rule that forwards.

FUZZ_EXAMPLES says how many; each number is one topology with its document and load, the same everywhere.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from routing.chain.region_targets import RegionTarget, RegionTargets
from routing.regions.sovereignty import SovereigntyDocument, SovereigntyRule
from simulator.regions.policies import POLICIES
from simulator.regions.region_run import RegionRun, RegionSpec
from simulator.regions.sovereignty_cost import MOST_ENGINES, CostQuestion, cost_of
from simulator.regions.workloads import WORKLOADS

EXAMPLES = max(100, int(os.environ.get("FUZZ_EXAMPLES", "0")))
PARTS = 10
REGIONS = ("us", "eu", "asia", "oz", "mars")
TENANTS = ("", "acme", "clinic", "bank")
FORWARDING = [name for name, system in POLICIES.items() if system.forwards]


def spec(number: int) -> RegionSpec:
    """Return the topology, rules and load of this number."""
    rng = Random(number)
    regions = tuple(rng.sample(REGIONS, rng.randint(2, len(REGIONS))))
    replicas = [rng.choice((0, 1, 1, 2)) for _ in regions]
    replicas[rng.randrange(len(regions))] = 1
    clients = [rng.choice((0, 2, 5, 20)) for _ in regions]
    clients[rng.randrange(len(regions))] = 20
    return RegionSpec(
        rng.choice(list(WORKLOADS)),
        rng.choice(FORWARDING),
        seed=number,
        clients=tuple(clients),
        replicas=tuple(replicas),
        kv_tokens=rng.choice((8_000, 30_000)),
        rtt_scale=rng.choice((0.1, 1.0, 10.0)),
        duration_s=4.0,
        warmup_s=0.0,
        regions=regions,
        sovereignty=document(rng, regions),
        tenants=TENANTS,
    )


def document(rng: Random, regions: tuple[str, ...]) -> SovereigntyDocument:
    def some(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(rng.sample(names, rng.randint(1, len(names)))) if rng.random() < 0.6 else ()

    rules = [
        SovereigntyRule(f"rule {number}", some(TENANTS[1:]), some(regions), some(regions), rng.random() < 0.5)
        for number in range(rng.randint(0, 6))
    ]
    return SovereigntyDocument(default=rng.choice(("allow", "deny")), rules=tuple(rules))


def allowed_hops(rules: SovereigntyDocument, regions: tuple[str, ...]) -> dict[tuple[str, str, str], str]:
    """Return the rule that allows each hop, computed in reverse: later rules first, overridden by earlier ones."""
    said = {
        (tenant, one, other): ("default" if rules.default == "allow" else "")
        for tenant in TENANTS
        for one in regions
        for other in regions
    }
    for rule in reversed(rules.rules):
        for tenant in rule.tenants or TENANTS:
            for one in rule.from_regions or regions:
                for other in rule.to_regions or regions:
                    said[tenant, one, other] = rule.name if rule.allow else ""
    return said | {(tenant, one, one): "same region" for tenant in TENANTS for one in regions}


def broken(number: int) -> tuple[list[str], int]:
    """Run one example; return the hops that broke a rule, and how many requests crossed regions."""
    asked = spec(number)
    allowed = allowed_hops(asked.sovereignty, asked.regions)
    run = RegionRun(asked)
    run.run()
    served = [request for request in run.requests if request.served_region]
    wrong = [
        f"{number}: {request.tenant or 'unnamed'} from {request.region} served in {request.served_region}"
        for request in served
        if not allowed[request.tenant, request.region, request.served_region]
    ]
    wrong += [f"{number}: {request.hops} hops" for request in run.requests if request.hops > 1]
    wrong += [
        f"{number}: {request.allowed_by!r} is named for a hop"
        for request in served
        if request.hops and request.allowed_by != allowed[request.tenant, request.region, request.served_region]
    ]
    return wrong, sum(request.hops for request in run.requests)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_rule_is_broken(part: int) -> None:
    crossed = 0
    for number in range(part, EXAMPLES, PARTS):
        wrong, hops = broken(number)
        assert not wrong
        crossed += hops
    assert crossed, "no request crossed, so nothing was shown"


def test_a_chain_that_ignores_the_rules_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_rules(self: RegionTargets, *facts: Any) -> list[RegionTarget]:
        return ruled(RegionTargets(self.peers, self._pools_of, lambda: None), *facts)

    ruled = RegionTargets.of
    monkeypatch.setattr(RegionTargets, "of", without_rules)
    assert any("served in" in wrong for number in range(30) for wrong in broken(number)[0])


NOTHING_LEAVES = SovereigntyRule("nothing leaves", allow=False)


def test_a_document_without_rules_costs_nothing() -> None:
    cost = cost_of(CostQuestion(SovereigntyDocument(), {"eu": 1, "us": 1}))
    assert cost.ruled == cost.free
    assert (cost.free.over_free, cost.without) == (1.0, {})
    assert cost.free.crossed_share > 0


def test_rules_that_keep_requests_at_home_cost_throughput_and_the_cause_is_named() -> None:
    # One way only: if half of the requests may leave in both directions, they make room for the others at no cost.
    harmless = SovereigntyRule("clinic may", tenants=("clinic",), to_regions=("eu",))
    cost = cost_of(CostQuestion(SovereigntyDocument(rules=(harmless, NOTHING_LEAVES)), {"eu": 1, "us": 1}))
    assert cost.ruled.over_free < 1.0
    assert cost.ruled.ttft_p90_s > 2 * cost.free.ttft_p90_s
    assert cost.without["nothing leaves"] == cost.free
    assert cost.without["clinic may"].over_free < cost.ruled.over_free


def test_a_large_fleet_is_scaled_down_in_proportion() -> None:
    cost = cost_of(CostQuestion(SovereigntyDocument(), {"a": 60, "b": 30, "c": 1, "empty": 0}))
    assert list(cost.engines) == ["a", "b", "c"]
    assert sum(cost.engines.values()) <= MOST_ENGINES + 1
    assert cost.engines["a"] > cost.engines["b"] > cost.engines["c"] == 1


@pytest.mark.parametrize("count", [1, 7])
def test_one_region_or_too_many_are_rejected(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} regions have engines"):
        cost_of(CostQuestion(SovereigntyDocument(), {f"r{number}": 1 for number in range(count)}))
