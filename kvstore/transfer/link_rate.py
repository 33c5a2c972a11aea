"""Cost of a transfer over one link, learned from past transfers: latency, and bytes per second."""

from __future__ import annotations

_SHARE = 0.1
"""Weight of the latest transfer."""
_SMALL_BYTES, _LARGE_BYTES = 16 << 10, 256 << 10


class LinkRate:
    """Cost of one link. Mutable: small transfers update the latency, large ones the rate, all others are ignored."""

    def __init__(self, latency_s: float = 0.001, bytes_per_s: float = 1e9) -> None:
        self.latency_s, self.bytes_per_s = latency_s, bytes_per_s
        self.transfers = 0
        self.transferred_bytes = 0
        self.large_transfers = 0

    def observe(self, size: int, seconds: float) -> None:
        """Learn from one transfer."""
        self.transfers += 1
        self.transferred_bytes += size
        if size <= _SMALL_BYTES:
            self.latency_s += _SHARE * (max(0.0, seconds) - self.latency_s)
        elif size >= _LARGE_BYTES:
            # A latency above the transfer's own time must not make the rate infinite or negative.
            rate = size / max(seconds - self.latency_s, seconds / 10, 1e-6)
            # The first measurement is better than the prior.
            self.bytes_per_s += (_SHARE if self.large_transfers else 1.0) * (rate - self.bytes_per_s)
            self.large_transfers += 1
