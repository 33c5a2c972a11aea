"""The one table of measurements, by the name of their result."""

from __future__ import annotations

from collections.abc import Callable

from bench.evidence.measure import (
    ablations,
    admission,
    choices,
    defaults,
    elasticity,
    end_to_end,
    goodput,
    health,
    key_length,
    knowledge,
    limits,
    load_curves,
    overload,
    paired_simulation,
    pd_ratio,
    pending,
    readings,
    rebalance,
    rlt,
    scale,
    shared_prefix,
    transfer,
)
from bench.evidence.store import Result

MEASURES: dict[str, Callable[[int], Result]] = {
    "goodput": goodput.measure,
    "readings": readings.measure,
    "defaults": defaults.measure,
    "knowledge": knowledge.measure,
    "load_curves": load_curves.measure,
    "end_to_end": end_to_end.measure,
    "limits": limits.measure,
    "pending": pending.measure,
    "key_length": key_length.measure,
    "rlt": rlt.measure,
    "ablations": ablations.measure,
    "choices": choices.measure,
    "scale": scale.measure,
    "transfer": transfer.measure,
    "shared_prefix": shared_prefix.measure,
    "admission": admission.measure,
    "overload": overload.measure,
    "paired_simulation": paired_simulation.measure,
    "elasticity": elasticity.measure,
    "pd_ratio": pd_ratio.measure,
    "health": health.measure,
    "rebalance": rebalance.measure,
}
