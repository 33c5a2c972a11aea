"""SGLang's cache_aware policy with the thresholds that the published comparisons use (0.5, 32, 1.0001).

The present gateway (smg) ships other defaults: threshold 0.3, absolute spread 64, relative spread 1.5.
"""

from __future__ import annotations

from simulator.baselines.cache_aware_rule import CacheAware, RelativeSpread


class SglangCacheAware(CacheAware, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Longest match unless loads are far apart or none holds enough; then fewest requests, or fewest blocks sent."""

    relative_spread: RelativeSpread = 1.0001
