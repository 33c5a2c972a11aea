"""Cost of loading KV blocks over one link (latency, time per byte), learned from the loads that engines report.

The link is the whole path from the node manager to the engine's own memory, including the copy into the engine.
"""

from __future__ import annotations

_SHARE = 0.2
"""Weight of the latest load. The first loads weigh more, because the prior is a guess."""
_MOST = 8.0
"""Limit of the ratio of a load's time to its expected time, in both directions."""


class LoadRate:
    """Latency and time per byte of one link. Mutable: each load corrects both in proportion to their expected parts."""

    __slots__ = ("latency_s", "loads", "s_per_byte")

    def __init__(self, latency_s: float, s_per_byte: float) -> None:
        if latency_s <= 0 or s_per_byte <= 0:
            raise ValueError("a link has a latency and a rate above 0")
        self.latency_s, self.s_per_byte = latency_s, s_per_byte
        self.loads = 0

    def seconds(self, size: float) -> float:
        """Return the expected seconds of a load of `size` bytes."""
        return self.latency_s + size * self.s_per_byte

    def observe(self, size: int, seconds: float) -> None:
        """Learn from one load. Loads without bytes or time are ignored."""
        if size <= 0 or seconds <= 0:
            return
        self.loads += 1
        expected_s = self.seconds(size)
        # Limited, so that one load that was held up does not undo what many have shown. As a power, so that twice as
        # slow and twice as fast weigh the same: loads that wait behind others are common where links are busy.
        share = max(_SHARE, 1.0 / (self.loads + 1))
        error = min(max(seconds / expected_s, 1 / _MOST), _MOST) ** share - 1.0
        waiting = self.latency_s / expected_s
        self.latency_s *= 1.0 + error * waiting
        self.s_per_byte *= 1.0 + error * (1.0 - waiting)
