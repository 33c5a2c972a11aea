"""The cache_aware policy of vllm-project/router, with its defaults (0.5, 32, 1.1)."""

from __future__ import annotations

from simulator.baselines.cache_aware_rule import CacheAware, RelativeSpread


class VllmCacheAware(CacheAware, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rule of sglang_cache_aware with vLLM's thresholds: it balances only at larger load differences."""

    relative_spread: RelativeSpread = 1.1
