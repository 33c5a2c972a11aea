"""Whether 3.5-fold compression of KV caches below engine memory pays off, given the load of the nodes' disks.

Decompression adds a small cost to each load. It pays off if DRAM is too small for the returning sessions, so that
caches are read from busy disks (docs/simulate.md, "A compressed tier").
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

MEASURED = ((0.05, 1.04), (0.42, 1.00), (0.61, 0.96), (0.78, 0.84))
"""Share of the disks' bandwidth used without compression, and the latency ratio of compression to no compression."""
PAYS_BELOW = 0.97
"""Smaller gains are within the tolerance of the measurement."""


class CompressionAdvice(msgspec.Struct, frozen=True):
    """Figures of an advice card."""

    disk_busy: float
    latency_ratio: float
    """Expected latency with compression over that without. Outside the measured range, the nearest measured ratio."""

    @property
    def pays(self) -> bool:
        """Whether to recommend compression."""
        return self.latency_ratio < PAYS_BELOW


def compression_advice(disk_busy: float) -> CompressionAdvice:
    """Return the advice if KV uses this share (0 to 1) of the disks' bandwidth, reads and writes together."""
    for (low, before), (high, after) in pairwise(MEASURED):
        if disk_busy <= high:
            share = max(0.0, (disk_busy - low) / (high - low))
            return CompressionAdvice(disk_busy, before + share * (after - before))
    return CompressionAdvice(disk_busy, MEASURED[-1][1])
