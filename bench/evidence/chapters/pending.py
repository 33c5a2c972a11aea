"""Chapter: work that waits, over time."""

from __future__ import annotations

from bench.evidence.measure.pending import LOADS, STEP_S
from bench.evidence.plots import pending as plots
from bench.evidence.store import load

LINES = ("cache_affinity", "least_loaded", "min_ttft", "preble", "dual_map", "least_cost")
MAPS = ("cache_affinity", "least_loaded", "dual_map", "least_cost")


def mean_pending(trace: str, placement: str) -> float:
    """Return the mean over time of the fleet's outstanding tokens."""
    peaks = plots.peaks_of(load("pending"), trace, placement)
    return sum(sum(step) for step in peaks) / len(peaks)


def text() -> str:
    """Return the chapter with its pictures."""
    result = load("pending")
    lines = plots.over_time(result, LINES, STEP_S, "pending")
    maps = plots.maps(result, MAPS, STEP_S, "hot_engines")
    more = mean_pending("toolagent_like", "least_loaded") / mean_pending("toolagent_like", "dual_map")
    return f"""## Outstanding work over time

![Outstanding tokens of the fleet]({lines})

*Conversation at {LOADS["conversation"]:g} requests/s, tool & agent at {LOADS["toolagent_like"]:g}; highest of every
{STEP_S} s.*

![Outstanding tokens per engine]({maps})

*Tool & agent. A bright row is an engine that others could relieve; a bright column is a burst that nobody could.*

`cache_affinity` lets single engines drown while others idle. `least_loaded` spreads evenly what it need not have computed:
on tool & agent {more:.1f} times as much stands as under `dual_map` (DualMap Fig. 11).
"""
