"""Figures: numbers of prefill and of decode engines (Mooncake §5.1, §7.5)."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.automation.pd_ratio import DAY_S, ENGINES, FIXED, SLO_TPOT_S, SLO_TTFT_S, SWEEP_ENGINES
from bench.evidence.plots import automation as plots
from bench.evidence.store import Row, load

EVEN = ENGINES // 2


def fixed(prefill: int) -> Row:
    """Return the day with a fixed number of prefill engines."""
    return load("pd_ratio").find(kind="day", controlled=False, prefill=prefill, seed=1)


def controlled() -> list[Row]:
    """Return the days under the controller, one per seed."""
    return load("pd_ratio").where(kind="day", controlled=True)


def swept(prefill: int) -> Row:
    """Return the run at a constant mix with this number of prefill engines."""
    return load("pd_ratio").find(kind="sweep", prefill=prefill)


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    named = [(f"{item} : {ENGINES - item}", fixed(item)) for item in FIXED]
    named += [(f"controller, seed {item['seed']}", item) for item in controlled()]
    return {
        "engines": ENGINES,
        "day_minutes": DAY_S / 60,
        "slo_ttft_s": SLO_TTFT_S,
        "slo_tpot_ms": 1000 * SLO_TPOT_S,
        "rows": [row | {"name": name, "tpot_p90_ms": 1000 * row["tpot_p90_s"]} for name, row in named],
        "sweep_engines": SWEEP_ENGINES,
    }


def draw() -> None:
    """Draw the day and the sweep."""
    plots.day(load("pd_ratio"), EVEN, "pd-day")
    plots.sweep(load("pd_ratio"), "pd-sweep")
