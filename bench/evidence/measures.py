"""The one table of measurements, by the name of their result."""

from __future__ import annotations

from collections.abc import Callable

from bench.evidence.measure import (
    ablations,
    admission,
    choices,
    goodput,
    key_length,
    limits,
    load_curves,
    overload,
    paired_simulation,
    pending,
    rlt,
    scale,
    shared_prefix,
    transfer,
)
from bench.evidence.store import Result

MEASURES: dict[str, Callable[[int], Result]] = {
    "goodput": goodput.measure,
    "load_curves": load_curves.measure,
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
}
