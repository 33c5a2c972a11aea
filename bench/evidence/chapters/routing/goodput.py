"""Figures: the load that each rule sustains."""

from __future__ import annotations

from typing import Any

from bench.evidence.plots import bars
from bench.evidence.plots.style import rule_name
from bench.evidence.rules import FORGETTING
from bench.evidence.store import Result, load

TRACES = ("conversation", "toolagent_like")
BASELINES = ("cache_affinity", "least_loaded", "min_ttft", "preble")
"""The baselines of DualMap §4.1."""
PUBLISHED = (*BASELINES, "mooncake", "sglang_cache_aware", "dynamo_kv", "dual_map", "round_robin", "random")
MARKS = {
    "conversation, goodput by both": 13.7,
    "tool & agent, goodput by both": 27.0,
    "conversation at 14 requests/s, on time": 0.945,
    "tool & agent, 32 engines at 96 requests/s, on time": 0.99,
}
"""Goodput of the study's best rules, by requests and by prompt tokens."""
OURS = (("least_cost", "late_last"), ("least_cost", FORGETTING), ("least_cost", "slack"), ("central", "late_binding"))
STUDY = {
    ("conversation", "round_robin", "fifo"): 7.9,
    ("conversation", "least_loaded", "fifo"): 9.2,
    ("conversation", "min_ttft", "fifo"): 11.0,
    ("conversation", "mooncake", "fifo"): 11.4,
    ("conversation", "preble", "fifo"): 11.4,
    ("conversation", "sglang_cache_aware", "fifo"): 11.4,
    ("conversation", "dynamo_kv", "fifo"): 10.8,
    ("conversation", "dual_map", "fifo"): 10.5,
    ("conversation", "least_cost", "fifo"): 11.4,
    ("conversation", "least_cost", "late_last"): 15.2,
    ("conversation", "least_cost", "slack"): 16.1,
    ("conversation", "central", "late_binding"): 16.7,
    ("toolagent_like", "central", "late_binding"): 39.9,
    ("toolagent_like", "least_cost", "late_last"): 29.8,
    ("toolagent_like", "least_cost", "slack"): 32.1,
    ("toolagent_like", "round_robin", "fifo"): 14.0,
    ("toolagent_like", "least_loaded", "fifo"): 17.5,
    ("toolagent_like", "min_ttft", "fifo"): 19.8,
    ("toolagent_like", "mooncake", "fifo"): 20.4,
    ("toolagent_like", "preble", "fifo"): 20.2,
    ("toolagent_like", "sglang_cache_aware", "fifo"): 19.6,
    ("toolagent_like", "dynamo_kv", "fifo"): 19.4,
    ("toolagent_like", "dual_map", "fifo"): 18.8,
    ("toolagent_like", "least_cost", "fifo"): 20.1,
}
"""Goodput by requests, by an independent simulator in the same setting."""


def best(result: Result, trace: str, placements: tuple[str, ...], figure: str) -> tuple[str, float]:
    """Return the best of these rules under FIFO, and its goodput."""
    rows = [row for row in result.where(trace=trace, order="fifo") if row["placement"] in placements]
    row = max(rows, key=lambda item: (item[figure], item["placement"]))
    return row["placement"], row[figure]


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    result = load("goodput")
    rules = []
    for first in result.where(trace="conversation"):
        rule = {"placement": first["placement"], "order": first["order"]}
        rows = [
            result.find(trace=trace, **rule) | {"study": STUDY.get((trace, rule["placement"], rule["order"]))}
            for trace in TRACES
        ]
        rules.append({"name": rule_name(**rule), "traces": rows})
    gain = {
        trace: result.number("goodput_both_qps", trace=trace, placement="least_cost", order="slack")
        / best(result, trace, PUBLISHED, "goodput_both_qps")[1]
        - 1
        for trace in TRACES
    }
    reached = zip(*(_reached(*rule) for rule in OURS), strict=True)
    marks = [
        {"name": name, "value": mark, "spec": ".1%" if mark < 1 else ".1f", "found": values}
        for (name, mark), values in zip(MARKS.items(), reached, strict=True)
    ]
    return {"rules": rules, "gain": gain, "ours": [rule_name(*rule) for rule in OURS], "marks": marks}


def draw() -> None:
    """Draw the bars."""
    result = load("goodput")
    bars.goodput(result, {trace: best(result, trace, PUBLISHED, "goodput_qps")[1] for trace in TRACES}, "goodput")


def _reached(placement: str, order: str) -> tuple[float, ...]:
    """Return the figures of one order, in the order of the marks."""
    rule = {"placement": placement, "order": order}
    return (
        load("goodput").number("goodput_both_qps", trace="conversation", **rule),
        load("goodput").number("goodput_both_qps", trace="toolagent_like", **rule),
        load("load_curves").number("slo_share", trace="conversation", qps=14.0, **rule),
        load("defaults").number("slo_share", kind="large", qps=96.0, **rule),
    )
