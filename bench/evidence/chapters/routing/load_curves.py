"""Figures of two chapters: latency over the load; affinity and balance."""

from __future__ import annotations

from typing import Any

from bench.evidence.plots import curves
from bench.evidence.store import load

SHOWN = [
    ("round_robin", "fifo"),
    ("least_loaded", "fifo"),
    ("cache_affinity", "fifo"),
    ("min_ttft", "fifo"),
    ("preble", "fifo"),
    ("mooncake", "fifo"),
    ("dual_map", "fifo"),
    ("least_cost", "fifo"),
    ("least_cost", "slack"),
    ("central", "late_binding"),
]
LOADS = {"conversation": 10.0, "toolagent_like": 18.0}


def figures() -> dict[str, Any]:
    """Return the figures of the text: median and 90th percentile of TTFT."""
    shown = {"round_robin": "fifo", "dual_map": "fifo", "least_cost": "fifo"}
    percentiles = {placement: _percentiles(placement, order) for placement, order in shown.items()}
    return percentiles | {"slack": _percentiles("least_cost", "slack")}


def _percentiles(placement: str, order: str) -> list[float]:
    row = load("load_curves").find(trace="conversation", placement=placement, order=order, qps=10.0)
    return [row["ttft_p50_s"], row["ttft_p90_s"]]


def draw() -> None:
    """Draw the curves, and hits against balance."""
    result = load("load_curves")
    curves.over_load(result, SHOWN, "ttft_p50_s", "TTFT p50, s", "ttft_p50", top=12.0)
    curves.over_load(result, SHOWN, "ttft_p90_s", "TTFT p90, s", "ttft_p90", top=20.0)
    curves.over_load(result, SHOWN, "slo_share", "requests on time, share", "on_time", top=1.02)
    curves.hits_against_balance(result, LOADS, "hits_and_balance")
