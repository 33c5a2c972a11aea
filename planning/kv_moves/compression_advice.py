"""Whether compressing KV caches 3.5-fold below engine memory would pay, by how busy the nodes' disks are.

Decompression costs each load a little. It pays once DRAM is too small for the sessions that come back, so that caches
are read from disks that are busy (docs/simulate.md, "A compressed tier").
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

MEASURED = ((0.05, 1.04), (0.42, 1.00), (0.61, 0.96), (0.78, 0.84))
"""Share of the disks' bandwidth in use without compression, and latency with it over that without."""
PAYS_BELOW = 0.97
"""Smaller gains are within the tolerance of the measurement."""


class CompressionAdvice(msgspec.Struct, frozen=True):
    """Contents of an advice card."""

    disk_busy: float
    latency_ratio: float
    """Expected latency with compression over that without; outside the measured range, the last figure."""

    @property
    def pays(self) -> bool:
        """Whether to advise it."""
        return self.latency_ratio < PAYS_BELOW


def compression_advice(disk_busy: float) -> CompressionAdvice:
    """Return the advice where KV takes this share (0 to 1) of the disks' bandwidth, reads and writes together."""
    for (low, before), (high, after) in pairwise(MEASURED):
        if disk_busy <= high:
            share = max(0.0, (disk_busy - low) / (high - low))
            return CompressionAdvice(disk_busy, before + share * (after - before))
    return CompressionAdvice(disk_busy, MEASURED[-1][1])
