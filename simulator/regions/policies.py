"""The table of systems that `simulate_regions` compares: their decision chains, and the location of gateways.

Ours are the production chain: the region rule of a policy before the router with the defaults of a new pool, whose
index follows the engines' events. The others have their own local rule, and know the prompts that they sent.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from kvstore.index.prefix_index import ENTRY_BYTES
from routing.policy.dispatch_limit_document import BLIND, IN_FLIGHT, PENDING, DispatchLimitDocument
from routing.policy.policy_document import RoutingPolicy
from routing.regions.locality_offload import LocalityOffload
from routing.regions.region_rule import RegionRule
from routing.regions.registry import REGION_LOCAL, REGION_RULES, RegionRules
from routing.regions.skywalker import SkyWalkerRegions
from routing.regions.skywalker_ch import SkyWalkerCh
from routing.router import Router
from simulator.engine_models.engine_profile import EngineProfile
from simulator.regions.baselines.least_load import LeastLoad
from simulator.regions.baselines.local_rule import LocalRule
from simulator.regions.baselines.round_robin import RoundRobinRegions
from simulator.regions.baselines.sglang_cache_aware import SglangCacheAwareRegions
from simulator.regions.region_request import BLOCK_TOKENS

INDEX_BYTES = 240_000 // BLOCK_TOKENS * ENTRY_BYTES
"""Memory for the prompts that a gateway sent to one engine, if no events report them: 240,000 tokens."""
# The production prober reads the queue with every fourth of its probes, ten per second.
REPORT_S = 0.4
PUBLISHED_REPORT_S = 0.1
"""As in SkyWalker §4.1."""
_NO_LIMIT = 1_000_000
_PUSHES = DispatchLimitDocument(mode=BLIND)
# The published limit is the number of pending requests alone (§3.3).
_PUBLISHED = DispatchLimitDocument(mode=PENDING, wait_for_memory=False)


class RegionPolicy(msgspec.Struct, frozen=True):
    """One system to compare."""

    policy: RoutingPolicy
    local_rule: RegionRule | None = None
    """The rule for engines of one gateway; None for the placement and the queue of the policy."""
    central: bool = False
    """Whether one gateway in the first region serves all clients and engines."""
    publishes_prefixes: bool = False
    """Whether heartbeats carry a snapshot of the prefixes that a region holds."""
    region_rules: RegionRules = msgspec.field(default_factory=lambda: REGION_RULES)
    pooled: bool = False
    """Whether all engines share one cache and memory, without network delays: a theoretical bound, not a real
    system.
    """

    @property
    def forwards(self) -> bool:
        """Whether gateways forward requests to each other."""
        return not self.central and self.policy.region_rule != REGION_LOCAL

    @property
    def follows_events(self) -> bool:
        """Whether the router's index follows the engines' events. Otherwise it holds the prompts that were sent."""
        return self.local_rule is None

    @property
    def report_s(self) -> float:
        """Seconds between an engine's reports of its queue and memory."""
        return REPORT_S if self.follows_events else PUBLISHED_REPORT_S

    def router(self, region: str, engine: EngineProfile, engines: int) -> Router:
        """Return the router of a gateway with this number of engines."""
        if self.local_rule is None:
            return Router(region, self._routing(engine), 1)
        router = Router(region, self._routing(engine), 1, index_max_bytes=INDEX_BYTES * max(1, engines))
        router.arms.follow(LocalRule(self.local_rule, router))
        return router

    def _routing(self, engine: EngineProfile) -> RoutingPolicy:
        """Return the routing policy with the costs of these engines. Clients wait however long it takes."""
        return replace(
            self.policy,
            prefill_cost=engine.prefill_cost,
            decode_cost=engine.decode_cost,
            prefill_window_tokens=engine.max_batched_tokens if self.local_rule is None else _NO_LIMIT,
            queue_limit=_NO_LIMIT,
            max_wait_s=3600.0,
            reservation_ttl_s=86_400.0,
        )


def _ours(*, publishes_prefixes: bool = True, region_rules: RegionRules = REGION_RULES) -> RegionPolicy:
    return RegionPolicy(RoutingPolicy(), publishes_prefixes=publishes_prefixes, region_rules=region_rules)


def _published(rule: RegionRule, region_rule: str = REGION_LOCAL) -> RegionPolicy:
    policy = RoutingPolicy(dispatch_limit=_PUBLISHED)
    return RegionPolicy(replace(policy, region_rule=region_rule), rule)


def _central(rule: RegionRule, limit: DispatchLimitDocument = _PUSHES, *, pooled: bool = False) -> RegionPolicy:
    policy = RoutingPolicy(dispatch_limit=limit, region_rule=REGION_LOCAL)
    return RegionPolicy(policy, rule, central=True, pooled=pooled)


def _in_flight(limit: int) -> RegionPolicy:
    return _central(SglangCacheAwareRegions(), DispatchLimitDocument(mode=IN_FLIGHT, in_flight_limit=limit))


def _without_early_offload(policy: RoutingPolicy) -> RegionRule:
    rule = REGION_RULES["locality_offload"](policy)
    return replace(rule, early_in_flight=1e9) if isinstance(rule, LocalityOffload) else rule


_LATE: RegionRules = {**REGION_RULES, "locality_offload": _without_early_offload}

POLICIES: dict[str, RegionPolicy] = {
    "ours": _ours(),
    "ours_unpublished": _ours(publishes_prefixes=False),
    "skywalker": _published(SkyWalkerRegions(), "skywalker"),
    "skywalker_ch": _published(SkyWalkerCh(), "skywalker_ch"),
    "region_local": _published(SkyWalkerRegions()),
    "nearest_round_robin": RegionPolicy(
        RoutingPolicy(dispatch_limit=_PUSHES, region_rule=REGION_LOCAL), RoundRobinRegions()
    ),
    "round_robin": _central(RoundRobinRegions()),
    "least_load": _central(LeastLoad()),
    "consistent_hash": _central(SkyWalkerCh()),
    "sglang_central": _central(SglangCacheAwareRegions()),
    "sglang_pending": _central(SglangCacheAwareRegions(), _PUBLISHED),
    **{f"sglang_in_flight_{limit}": _in_flight(limit) for limit in (12, 16, 24, 28, 40)},
    "ours_central": RegionPolicy(RoutingPolicy(region_rule=REGION_LOCAL), central=True),
    "ours_late": _ours(region_rules=_LATE),
    "pooled_bound": _central(LeastLoad(), pooled=True),
}
