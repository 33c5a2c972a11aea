"""The frequently used prefix that most engines of a pool hold, but this engine does not."""

from __future__ import annotations

from gateway.contracts.cache_locality_sample import PoolCacheLocality

KEY_DIGITS = 6
"""Number of hex digits that name a key in a sentence, as on the Cache locality page."""


def missing_prefix(pool: PoolCacheLocality, engine_id: str) -> str:
    """Return the start of the key of the most used prefix that most other engines hold, but this one does not."""
    others = [item for item in pool.accepting if item != engine_id]
    lacking = [
        prefix
        for prefix in pool.prefixes
        if engine_id not in prefix.holders and 2 * sum(other in prefix.holders for other in others) > len(others)
    ]
    most = max(lacking, key=lambda prefix: (prefix.requests, prefix.key), default=None)
    return most.key[:KEY_DIGITS] if most is not None else ""
