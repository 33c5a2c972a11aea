"""Figures: larger fleets (DualMap A.4, Fig. 13)."""

from __future__ import annotations

from typing import Any

from bench.evidence.chapters.routing import keys
from bench.evidence.measure.capacity.scale import POINTS, RULES, SIZES
from bench.evidence.plots import scale as plots
from bench.evidence.plots.style import rule_name
from bench.evidence.store import load

SAME_LOAD = ((8, 22.0), (16, 44.0), (32, 88.0))
STUDY = {
    (16, 44.0, "least_cost", "slack"): 0.997,
    (16, 44.0, "least_cost", "fifo"): 0.934,
    (16, 44.0, "min_ttft", "fifo"): 0.779,
    (16, 44.0, "preble", "fifo"): 0.589,
    (16, 44.0, "dual_map", "fifo"): 0.056,
    (16, 44.0, "sglang_cache_aware", "fifo"): 0.021,
    (16, 44.0, "least_loaded", "fifo"): 0.003,
    (32, 88.0, "least_cost", "fifo"): 0.994,
    (32, 88.0, "min_ttft", "fifo"): 1.0,
    (32, 88.0, "preble", "fifo"): 0.62,
    (32, 88.0, "dual_map", "fifo"): 0.89,
    (32, 88.0, "sglang_cache_aware", "fifo"): 0.23,
    (32, 88.0, "cache_affinity", "fifo"): 0.38,
    (32, 96.0, "least_cost", "slack"): 0.997,
    (32, 96.0, "least_cost", "fifo"): 0.954,
    (32, 96.0, "min_ttft", "fifo"): 0.779,
    (32, 96.0, "preble", "fifo"): 0.571,
    (32, 96.0, "dual_map", "fifo"): 0.092,
    (32, 96.0, "sglang_cache_aware", "fifo"): 0.031,
    (32, 96.0, "least_loaded", "fifo"): 0.011,
}
"""On-time shares by an independent simulator."""


def on_time(engines: int, qps: float, placement: str, order: str = "fifo") -> float:
    """Return the share of requests on time."""
    return load("scale").number("slo_share", kind="load", engines=engines, qps=qps, placement=placement, order=order)


def goodput(engines: int, placement: str, order: str = "fifo") -> float:
    """Return the largest rate with 90 % on time."""
    return load("scale").number("goodput_qps", kind="goodput", engines=engines, placement=placement, order=order)


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    requests = load("scale").settings["requests"]
    rules = [
        {
            "name": rule_name(*rule),
            "goodput": [goodput(size, *rule) for size in SIZES],
            "growth": growth(*rule),
            "on_time": [_point(*point, rule) for point in POINTS],
        }
        for rule in RULES
    ]
    return {
        "requests": [requests[str(size)] for size in SIZES],
        "sizes": SIZES,
        "points": [_point(*point, RULES[0]) for point in POINTS],
        "rules": rules,
        "growth": {placement: growth(placement) for placement in ("cache_affinity", "preble", "least_cost")},
        "hot": keys.PAPER["13"],
    }


def growth(placement: str, order: str = "fifo") -> float:
    """Return the goodput of the largest fleet over that of the smallest."""
    return goodput(SIZES[-1], placement, order) / goodput(SIZES[0], placement, order)


def _point(engines: int, qps: float, rule: tuple[str, str]) -> dict[str, Any]:
    study = STUDY.get((engines, qps, *rule))
    return {
        "engines": engines,
        "qps": qps,
        "share": on_time(engines, qps, *rule),
        "study": study,
        "studied": engines > SIZES[0],
    }


def draw() -> None:
    """Draw goodput and shares on time over the size."""
    plots.over_size(load("scale"), RULES, SIZES, SAME_LOAD, "scale")
