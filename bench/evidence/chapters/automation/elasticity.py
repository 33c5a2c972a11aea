"""Figures: a pool that grows and shrinks (DualMap §3.4, A.3.3, Fig. 12)."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.automation.elasticity import FEW, FIXED_CHANGE_S, FIXED_QPS, MANY, PHASES
from bench.evidence.plots import automation as plots
from bench.evidence.store import Row, load
from planning.scaling.remap import Remap, remap_of
from simulator.runs.simulation_run import engine_names

PLANNED, REACTIVE, STILL = "dual_map", "dual_map, reactive", "dual_map, no scaling"
OURS = "least_cost + slack"
CHANGES = ("8→9", "8→7")
DIP_S = 120.0
"""Time after a change of the fleet over which hits are compared."""


def row(label: str) -> Row:
    """Return a run."""
    return load("elasticity").find(label=label)


def plans(label: str) -> list[Row]:
    """Return the plans of a run that changed the fleet."""
    return list(row(label)["plans"])


def course(label: str, first_s: float, last_s: float) -> list[list[float]]:
    """Return (start, requests, share on time, hits) of the windows that begin within a period."""
    return [item for item in row(label)["course"] if first_s <= item[0] < last_s]


def on_time(label: str, first_s: float, last_s: float) -> float:
    """Return the on-time share of the requests in a period."""
    part = course(label, first_s, last_s)
    return sum(item[1] * item[2] for item in part) / sum(item[1] for item in part)


def hits(label: str) -> float:
    """Return the hit share in the first seconds after the change of the fleet."""
    part = course(label, FIXED_CHANGE_S, FIXED_CHANGE_S + DIP_S)
    return sum(item[1] * (item[3] or 0.0) for item in part) / sum(item[1] for item in part)


def dip(name: str, change: str) -> float:
    """Return how far hits fall below those without the change."""
    return hits(f"{name} 8→8") - hits(f"{name} {change}")


def recovered_s(label: str) -> float:
    """Return the seconds from the start of the overload until 90 % of later overload requests are on time."""
    start_s, end_s = overload()
    for window in course(label, start_s, end_s):
        if window[2] >= 0.9 and min(item[2] for item in course(label, window[0], end_s)) >= 0.9:
            return window[0] - start_s
    return float("inf")


def overload() -> tuple[float, float]:
    """Return the beginning and end of the overload in seconds."""
    start_s = PHASES[0][1]
    return start_s, start_s + PHASES[1][1]


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    return {
        "phases": [{"qps": qps, "minutes": seconds / 60} for qps, seconds in PHASES],
        "few": FEW,
        "many": MANY,
        "plans": [plan | {"label": label} for label in (REACTIVE, PLANNED, OURS) for plan in plans(label)],
        "fixed_qps": FIXED_QPS,
        "dip_s": DIP_S,
        "changes": [
            {
                "name": change,
                "remap": _remap(change),
                "rings": dip("rings", change),
                "modulo": dip("modulo", change),
            }
            for change in CHANGES
        ],
        "planned": on_time(PLANNED, *overload()),
        "still": on_time(STILL, *overload()),
    }


def _remap(change: str) -> Remap:
    before, after = (int(part) for part in change.split("→"))
    return remap_of(engine_names(before), engine_names(after))


def draw() -> None:
    """Draw attainment over time, and hits around a change of the fleet."""
    plots.elasticity(load("elasticity"), (REACTIVE, PLANNED), STILL, "elasticity")
    plots.hits_at_change(load("elasticity"), CHANGES, FIXED_CHANGE_S, "elasticity-hits")
