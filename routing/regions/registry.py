"""The table of region rules for policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from routing.policy.policy_document import RoutingPolicy
from routing.regions.locality_offload import LocalityOffload
from routing.regions.region_rule import RegionRule
from routing.regions.skywalker import SkyWalkerRegions
from routing.regions.skywalker_ch import SkyWalkerCh

REGION_LOCAL: Final = "region_local"
"""Never forwards, so no other region is queried."""

_STUDIED = LocalityOffload()


def _locality_offload(policy: RoutingPolicy) -> RegionRule:
    """Return our rule with the pool's prefill cost. The cost of a request in flight keeps its ratio to it."""
    per_token_s = policy.prefill_cost.per_token_s
    in_flight_s = _STUDIED.in_flight_s * per_token_s / _STUDIED.prefill_s_per_token
    return LocalityOffload(prefill_s_per_token=per_token_s, in_flight_s=in_flight_s)


RegionRules = Mapping[str, Callable[[RoutingPolicy], RegionRule]]

REGION_RULES: RegionRules = {
    "locality_offload": _locality_offload,
    "skywalker": lambda _policy: SkyWalkerRegions(),
    "skywalker_ch": lambda _policy: SkyWalkerCh(),
}


def build_region_rule(policy: RoutingPolicy, rules: RegionRules = REGION_RULES) -> RegionRule | None:
    """Return the rule that the policy names, None if it never forwards."""
    build = rules.get(policy.region_rule)
    return None if build is None else build(policy)
