"""Decide whether an advisory can start a prefetch: only if the KV cache would arrive in time.

Prefetches that ignore the links' backlog overload them once disks or memory are short (research on advisories, §5).
"""

from __future__ import annotations

ETA_LIMIT_S = 4.0
"""Longer transfers are not started: the backlog changes before they end."""


def prefetch_starts(eta_s: float, lead_s: float, limit_s: float = ETA_LIMIT_S) -> bool:
    """Return whether to start a transfer that would end in `eta_s`, for a request expected in `lead_s`."""
    return 0.0 < eta_s < min(lead_s, limit_s)
