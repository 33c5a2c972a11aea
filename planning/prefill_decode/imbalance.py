"""Imbalance of load between prefill and decode engines: f_im of Mooncake §5.1.

f_im = (L̄_decode + 1) / (L̄_prefill + 1), over load samples without the highest and the lowest tenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from planning.facts.fleet_facts import RoleLoad, known
from planning.prefill_decode.role_changes import DECODE, PREFILL

TRIMMED = 0.1
"""Share of the samples dropped at each end."""


class Imbalance(msgspec.Struct, frozen=True):
    """The imbalance factor and the two loads behind it."""

    factor: float
    prefill_load: float
    decode_load: float


def imbalance_of(loads: Sequence[RoleLoad], now_s: float, window_s: float, min_samples: int) -> Imbalance | None:
    """Return f_im over the last `window_s` seconds, None if a role has too few numeric samples."""
    means = []
    for role in (PREFILL, DECODE):
        samples = [
            load
            for item in loads
            if item.role == role and now_s - window_s <= item.at_s <= now_s and (load := known(item.load)) is not None
        ]
        # A factor of two loads is worth no more than the less known one.
        if len(samples) < min_samples:
            return None
        means.append(trimmed_mean(samples))
    prefill_load, decode_load = means
    return Imbalance((decode_load + 1.0) / (prefill_load + 1.0), prefill_load, decode_load)


def trimmed_mean(samples: Sequence[float]) -> float:
    """Return the mean without the highest and lowest tenth. Raises ValueError without samples."""
    if not samples:
        raise ValueError("a mean needs samples")
    cut = int(TRIMMED * len(samples))
    return fmean(sorted(samples)[cut : len(samples) - cut])
