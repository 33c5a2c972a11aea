"""The region rules that a policy can name."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy
from routing.regions.locality_offload import LocalityOffload
from routing.regions.registry import REGION_LOCAL, REGION_RULES, build_region_rule


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
