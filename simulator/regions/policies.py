"""The table of systems that `simulate_regions` compares: rule, push limit, and location of balancers."""

from __future__ import annotations

import msgspec

from routing.regions.locality_offload import LocalityOffload
from routing.regions.region_rule import RegionRule
from routing.regions.round_robin import RoundRobinRegions
from routing.regions.skywalker import SkyWalkerRegions
from routing.regions.skywalker_ch import SkyWalkerCh
from simulator.regions.baselines.least_load import LeastLoad
from simulator.regions.baselines.sglang_cache_aware import SglangCacheAwareRegions
from simulator.regions.push_limits import BLIND, PENDING, PushLimit


class RegionPolicy(msgspec.Struct, frozen=True):
    """One system to compare."""

    rule: RegionRule
    push_limit: PushLimit = PENDING
    central: bool = False
    """Whether one balancer in the first region serves all clients and engines."""
    forwards: bool = True
    """Whether balancers forward requests to each other."""
    indexes_outputs: bool = False
    """Whether a balancer adds outputs to its index of an engine."""
    publishes_prefixes: bool = False
    """Whether heartbeats carry a snapshot of the prefixes that a region holds."""
    pooled: bool = False
    """Whether all engines share one cache and memory, without network delays: a theoretical bound, not a real
    system.
    """


def _in_flight(limit: int) -> RegionPolicy:
    return RegionPolicy(SglangCacheAwareRegions(), PushLimit("in_flight", limit), central=True)


POLICIES: dict[str, RegionPolicy] = {
    "ours": RegionPolicy(LocalityOffload(), indexes_outputs=True, publishes_prefixes=True),
    "ours_unpublished": RegionPolicy(LocalityOffload(), indexes_outputs=True),
    "skywalker": RegionPolicy(SkyWalkerRegions()),
    "skywalker_ch": RegionPolicy(SkyWalkerCh()),
    "region_local": RegionPolicy(SkyWalkerRegions(), forwards=False),
    "nearest_round_robin": RegionPolicy(RoundRobinRegions(), BLIND, forwards=False),
    "round_robin": RegionPolicy(RoundRobinRegions(), BLIND, central=True),
    "least_load": RegionPolicy(LeastLoad(), BLIND, central=True),
    "consistent_hash": RegionPolicy(SkyWalkerCh(), BLIND, central=True),
    "sglang_central": RegionPolicy(SglangCacheAwareRegions(), BLIND, central=True),
    "sglang_pending": RegionPolicy(SglangCacheAwareRegions(), PENDING, central=True),
    **{f"sglang_in_flight_{limit}": _in_flight(limit) for limit in (12, 16, 24, 28, 40)},
    "ours_central": RegionPolicy(LocalityOffload(), central=True, indexes_outputs=True),
    "ours_late": RegionPolicy(LocalityOffload(early_in_flight=1e9), indexes_outputs=True),
    "pooled_bound": RegionPolicy(LeastLoad(), BLIND, central=True, pooled=True),
}
