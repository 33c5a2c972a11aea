"""Whether an advisory may start a prefetch: only if the KV cache would be there in time.

Prefetches that ignore the links' backlog collapse once disks or memory are short (research on advisories, §5).
"""

from __future__ import annotations

ETA_LIMIT_S = 4.0
"""A longer transfer is no help: the backlog changes before it ends."""


def prefetch_starts(eta_s: float, lead_s: float, limit_s: float = ETA_LIMIT_S) -> bool:
    """Return whether a transfer that would end in `eta_s` may start for a request expected in `lead_s`."""
    return 0.0 < eta_s < min(lead_s, limit_s)
