"""A link under the virtual clock: transfers run one after another within its bandwidth; each takes its latency more."""

from __future__ import annotations

import math


class OverbookedLinkError(AssertionError):
    """A link has carried more bytes than its bandwidth allows."""


class Link:
    """One direction of a link; without a bandwidth, it only delays.

    Mutable: `carried_bytes`, and `free_at`, when all booked bytes have been carried (seconds).
    """

    __slots__ = ("bytes_per_s", "carried_bytes", "free_at", "latency_s")

    def __init__(self, bytes_per_s: float = math.inf, latency_s: float = 0.0) -> None:
        self.bytes_per_s, self.latency_s = bytes_per_s, latency_s
        self.carried_bytes = self.free_at = 0.0

    def carry(self, size: float, now: float) -> float:
        """Book `size` bytes; return the time in seconds when the last one arrives."""
        self.free_at = max(now, self.free_at) + size / self.bytes_per_s
        self.carried_bytes += size
        self.check()
        return self.free_at + self.latency_s

    def bytes_within(self, now: float, seconds: float) -> float:
        """Return how many more bytes could arrive within `seconds` from now."""
        return max(0.0, now + seconds - self.latency_s - max(now, self.free_at)) * self.bytes_per_s

    def check(self) -> None:
        """Raise OverbookedLinkError if more bytes were carried than bandwidth × time."""
        # Rounding adds up over many transfers.
        if self.carried_bytes > self.bytes_per_s * self.free_at * (1 + 1e-9) + 1.0:
            raise OverbookedLinkError(f"{self.carried_bytes:.0f} bytes in {self.free_at:.3f} s")
