"""SGLang's cache_aware policy with the thresholds that the published comparisons use (0.5, 32, 1.0001).

The current gateway (smg) has other defaults: threshold 0.3, absolute spread 64, relative spread 1.5.
"""

from __future__ import annotations

from simulator.baselines.cache_aware_rule import CacheAware, RelativeSpread


class SglangCacheAware(CacheAware, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Longest match if loads are close and the match is long enough. Else fewest requests, or fewest blocks sent."""

    relative_spread: RelativeSpread = 1.0001
