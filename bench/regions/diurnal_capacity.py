"""Capacity saved by pooling regions with different days (SkyWalker Fig. 3): `python -m bench.regions.diurnal_capacity`.

Demand per region is a raised cosine with its peak at 15:00 local time and 5 % noise, in steps of 15 minutes; `sharp`
peaks are the cosine squared. Saving = 1 - peak of the sum / sum of the peaks. All regions have the same peak.
"""

from __future__ import annotations

import math
from random import Random

from bench.report import Target, command_line, write_report

FIVE, THREE = (-6.0, 1.0, 3.0, 5.5, 8.0), (-6.0, 1.0, 8.0)
"""UTC offsets (h)."""
STEPS, PEAK_H, NOISE, DRAWS = 96, 15.0, 0.05, 20
SPREADS = {"2_4": (2.0, 4.0), "paper": (2.88, 32.64), "4_10": (4.0, 10.0), "10_30": (10.0, 30.0)}
"""Ratio of peak to trough of each region, drawn log-uniformly. One range is the paper's own."""
RESERVED_PER_H, ON_DEMAND_PER_H = 37.56, 98.32
"""Hourly cost of a p5.48xlarge ($, §2.1)."""


def demand(offset_h: float, ratio: float, sharpness: int, rng: Random) -> list[float]:
    """Return one region's demand over a day. Its peak is 1 before noise."""
    shape = [
        ((1 + math.cos(2 * math.pi * (step * 24 / STEPS + offset_h - PEAK_H) / 24)) / 2) ** sharpness
        for step in range(STEPS)
    ]
    return [(1 / ratio + (1 - 1 / ratio) * item) * (1 + NOISE * rng.gauss(0, 1)) for item in shape]


def savings(offsets: tuple[float, ...], spread: tuple[float, float], sharpness: int) -> tuple[float, float]:
    """Return the mean saving, and the mean cost ratio of perfect on-demand scaling to pooled reserved engines."""
    saved = on_demand = 0.0
    for draw in range(DRAWS):
        rng = Random(draw)
        ratios = [math.exp(rng.uniform(*map(math.log, spread))) for _ in offsets]
        days = [demand(offset, ratio, sharpness, rng) for offset, ratio in zip(offsets, ratios, strict=True)]
        total = [sum(step) for step in zip(*days, strict=True)]
        saved += 1 - max(total) / sum(max(day) for day in days)
        on_demand += ON_DEMAND_PER_H * sum(total) / STEPS / (RESERVED_PER_H * max(total))
    return saved / DRAWS, on_demand / DRAWS


def main() -> None:
    """Compute all savings and write the result."""
    figures: dict[str, float] = {}
    for offsets in (FIVE, THREE):
        for name, spread in SPREADS.items():
            for peaks, sharpness in (("broad", 1), ("sharp", 2)):
                key = f"{len(offsets)}_regions_{name}_{peaks}"
                saved, on_demand = savings(offsets, spread, sharpness)
                figures[f"saving_{key}"], figures[f"on_demand_{key}"] = round(saved, 4), round(on_demand, 3)
    targets = {
        f"{key}_{op}": Target(value=figures[key], op=op, target=target)
        for key, low, high in (("saving_3_regions_4_10_broad", 0.34, 0.38), ("saving_3_regions_4_10_sharp", 0.44, 0.48))
        for op, target in ((">=", low), ("<=", high))
    }
    key = "saving_5_regions_paper_sharp"
    targets["paper_40.5_percent"] = Target(value=figures[key], op=">=", target=0.385)
    write_report("diurnal_capacity", figures, targets, command_line("diurnal_capacity", __doc__).parse_args().json)


if __name__ == "__main__":
    main()
