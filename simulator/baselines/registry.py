"""The table of placements that can be simulated: those of live pools, of textbooks, and of other routers."""

from __future__ import annotations

import msgspec

from routing import registry
from simulator.baselines.cache_aware import SglangCacheAware, VllmCacheAware
from simulator.baselines.mooncake_transfers import MooncakeTransfers
from simulator.baselines.other_routers import (
    AibrixPrefix,
    DynamoKv,
    LlmdWeighted,
    Preble,
    ProductionStackLoadAware,
    RayPrefix,
)
from simulator.baselines.textbook_rules import CacheAffinity, MinTtft, PowerOfTwo, RandomEngine

_AFTER: dict[str, dict[str, type[msgspec.Struct]]] = {
    "round_robin": {"random": RandomEngine},
    "least_loaded": {"cache_affinity": CacheAffinity, "min_ttft": MinTtft},
    "mooncake": {
        "preble": Preble,
        "sglang_cache_aware": SglangCacheAware,
        "vllm_cache_aware": VllmCacheAware,
        "dynamo_kv": DynamoKv,
    },
    "lbgr": {"power_of_two": PowerOfTwo},
    "skywalker": {
        "llmd_weighted": LlmdWeighted,
        "aibrix_prefix": AibrixPrefix,
        "production_stack_load_aware": ProductionStackLoadAware,
        "ray_prefix": RayPrefix,
    },
}
"""The baselines, grouped by the live rule that precedes them in reports."""

_FULLER: dict[str, type[msgspec.Struct]] = {"mooncake": MooncakeTransfers}
"""Rules with more features in a simulated fleet than in a live one."""

PLACEMENTS: dict[str, type[msgspec.Struct]] = {
    name: _FULLER.get(name, kind)
    for live, own in registry.PLACEMENTS.items()
    for name, kind in ((live, own), *_AFTER.get(live, {}).items())
}

STAGES: dict[str, registry.Table] = {**registry.STAGES, "placement": PLACEMENTS}
"""The table of routing.registry.STAGES with the baselines added."""
