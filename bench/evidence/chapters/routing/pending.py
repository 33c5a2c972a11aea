"""Figures: in-flight work over time."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.routing.pending import LOADS, STEP_S
from bench.evidence.plots import pending as plots
from bench.evidence.store import load

LINES = ("cache_affinity", "least_loaded", "min_ttft", "preble", "dual_map", "least_cost")
MAPS = ("cache_affinity", "least_loaded", "dual_map", "least_cost")


def mean_pending(trace: str, placement: str) -> float:
    """Return the mean over time of the fleet's in-flight tokens."""
    peaks = plots.peaks_of(load("pending"), trace, placement)
    return sum(sum(step) for step in peaks) / len(peaks)


def more_under_least_loaded() -> float:
    """Return the ratio of in-flight work on tool & agent under least loaded to that under DualMap."""
    return mean_pending("toolagent_like", "least_loaded") / mean_pending("toolagent_like", "dual_map")


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    return {"load": LOADS, "step_s": STEP_S, "more": more_under_least_loaded()}


def draw() -> None:
    """Draw the fleet's sum, and a map of the engines."""
    plots.over_time(load("pending"), LINES, STEP_S, "pending")
    plots.maps(load("pending"), MAPS, STEP_S, "hot_engines")
