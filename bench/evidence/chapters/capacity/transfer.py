"""Figures: blocks fetched from other engines (Mooncake §4.2, §7.4.2)."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.capacity.transfer import BANDWIDTH_LOADS, BANDWIDTHS_GBPS, LOADS, RULES, USUAL_GBPS
from bench.evidence.plots import transfer as plots
from bench.evidence.store import load

NAMES = {"conversation": "conversation", "toolagent_like": "tool & agent"}


def mean_ttft(trace: str, placement: str, qps: float) -> float:
    """Return the mean of TTFT in seconds at 100 Gbit/s."""
    return load("transfer").number("ttft_mean_s", kind="load", trace=trace, placement=placement, qps=qps)


def at_bandwidth(trace: str, gbps: float) -> float:
    """Return the mean of TTFT in seconds with transfers at a bandwidth."""
    return load("transfer").number("ttft_mean_s", kind="bandwidth", trace=trace, gbps=gbps)


def change(trace: str, qps: float) -> float:
    """Return the relative change of mean TTFT with transfers."""
    return mean_ttft(trace, "mooncake", qps) / mean_ttft(trace, "min_ttft", qps) - 1


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    rows = [
        {
            "trace": NAMES[trace],
            "qps": qps,
            "ttft": [mean_ttft(trace, placement, qps) for placement in RULES],
            "change": change(trace, qps),
        }
        for trace, loads in LOADS.items()
        for qps in loads
    ]
    ends = {
        name: {"gbps": gbps, "ttft": at_bandwidth("conversation", gbps)}
        for name, gbps in (("slowest", BANDWIDTHS_GBPS[0]), ("fastest", BANDWIDTHS_GBPS[-1]))
    }
    return {"usual": USUAL_GBPS, "rows": rows} | ends


def draw() -> None:
    """Draw mean TTFT over the load and over the bandwidth."""
    plots.over_load(load("transfer"), RULES, "transfer")
    local = {trace: mean_ttft(trace, "min_ttft", qps) for trace, qps in BANDWIDTH_LOADS.items()}
    plots.over_bandwidth(load("transfer"), local, BANDWIDTH_LOADS, "bandwidth")
