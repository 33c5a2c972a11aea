"""Figures: the effect of each part of DualMap (DualMap §4.3, A.9)."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.routing import choices
from bench.evidence.measure.routing.ablations import (
    CHOICE_RULES,
    CHOICES,
    FULL,
    KEYS_AND_RINGS,
    LOADS,
    LUCK_SEEDS,
    PAPER,
    WITHOUT_REBALANCE,
    choice_name,
)
from bench.evidence.plots import ablations as plots
from bench.evidence.store import load

SHOWN = {"conversation": 10.0, "toolagent_like": 18.0}
"""The load of the table: just below DualMap's goodput."""
PAST = {"conversation": 11.0, "toolagent_like": 19.0}
"""The load just above it."""
ONE_NODE = "1 virtual node"
STUDY = {
    ("conversation", "affinity"): 9.5,
    ("conversation", "least_loaded"): 10.3,
    ("conversation", "min_ttft"): 10.8,
    ("conversation", WITHOUT_REBALANCE): 10.5,
    ("conversation", FULL): 10.5,
    ("conversation", "static key"): 10.5,
    ("conversation", ONE_NODE): 8.4,
    ("toolagent_like", "affinity"): 17.9,
    ("toolagent_like", "least_loaded"): 18.7,
    ("toolagent_like", "min_ttft"): 19.7,
    ("toolagent_like", WITHOUT_REBALANCE): 18.9,
    ("toolagent_like", FULL): 18.9,
    ("toolagent_like", "static key"): 18.8,
    ("toolagent_like", ONE_NODE): 15.5,
}
"""Goodput by requests, by an independent simulator."""


def at(trace: str, label: str, qps: float, figure: str) -> float:
    """Return a figure of one configuration at one load."""
    return load("ablations").number(figure, kind="load", trace=trace, label=label, qps=qps)


def goodput(trace: str, label: str) -> float:
    """Return the largest rate with 90 % on time."""
    return load("ablations").number("goodput_qps", kind="goodput", trace=trace, label=label)


def over_all(trace: str, placement: str) -> float:
    """Return the goodput of a rule that can choose among all engines."""
    return load("goodput").number("goodput_qps", trace=trace, placement=placement, order="fifo")


def deviation(bins: str, d: int, engines: int) -> float:
    """Return how far the fullest engine is above the mean of balls in bins."""
    return load("choices").number("max_deviation", bins=bins, d=d, engines=engines)


def goodputs_of_keys(trace: str, label: str) -> list[float]:
    """Return the goodput with each other set of keys, and thus other positions on the rings."""
    rows = load("ablations").where(kind="keys", trace=trace, label=label)
    return [row["goodput_qps"] for row in rows]


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    rows = [{"label": label, "traces": [_row(trace, label) for trace in SHOWN]} for label in (*PAPER, *KEYS_AND_RINGS)]
    return {
        "rows": rows,
        "shown": SHOWN,
        "luck_seeds": LUCK_SEEDS,
        "luck": {
            name: {trace: goodputs_of_keys(trace, label) for trace in SHOWN}
            for name, label in (("full", FULL), ("one_node", ONE_NODE))
        },
        "past": [at("conversation", choice_name("slo", d), PAST["conversation"], "slo_share") for d in (2, 3, 4)],
        "past_qps": PAST["conversation"],
        "bin_seeds": load("choices").settings["seeds"],
    }


def _row(trace: str, label: str) -> dict[str, Any]:
    row = load("ablations").find(kind="load", trace=trace, label=label, qps=SHOWN[trace])
    return row | {"goodput_qps": goodput(trace, label), "study": STUDY.get((trace, label))}


def draw() -> None:
    """Draw TTFT over the load, goodput over the candidates, and balls in bins."""
    plots.over_load(load("ablations"), tuple(PAPER), "ablations")
    points = {
        trace: {
            selection: [(d, goodput(trace, choice_name(selection, d))) for d in CHOICES] for selection in CHOICE_RULES
        }
        for trace in LOADS
    }
    references = {trace: {name: over_all(trace, name) for name in ("min_ttft", "least_cost")} for trace in LOADS}
    plots.over_choices(points, references, "candidates")
    plots.balls(load("choices"), choices.CHOICES, choices.SIZES, "balls_in_bins")
