"""Chapter: how much load each rule sustains."""

from __future__ import annotations

from bench.evidence.claims import percent
from bench.evidence.plots import bars
from bench.evidence.plots.style import rule_name
from bench.evidence.rules import FORGETTING
from bench.evidence.store import Result, load

BASELINES = ("cache_affinity", "least_loaded", "min_ttft", "preble")
"""What DualMap §4.1 compares itself with."""
PUBLISHED = (*BASELINES, "mooncake", "sglang_cache_aware", "dynamo_kv", "dual_map", "round_robin", "random")
MARKS = {
    "conversation, goodput by both": 13.7,
    "tool & agent, goodput by both": 27.0,
    "conversation at 14 requests/s, on time": 0.945,
    "tool & agent, 32 engines at 96 requests/s, on time": 0.99,
}
"""What the study's best rules reach, by requests and by prompt tokens."""
OURS = (("least_cost", "shed"), ("least_cost", FORGETTING), ("least_cost", "slack"), ("central", "late_binding"))
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
    ("conversation", "least_cost", "shed"): 15.2,
    ("conversation", "least_cost", "slack"): 16.1,
    ("conversation", "central", "late_binding"): 16.7,
    ("toolagent_like", "central", "late_binding"): 39.9,
    ("toolagent_like", "least_cost", "shed"): 29.8,
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
"""Goodput by requests that an independent simulator found in the same setting."""


def best(result: Result, trace: str, placements: tuple[str, ...], figure: str) -> tuple[str, float]:
    """Return the best FIFO rule of these, and its goodput."""
    rows = [row for row in result.where(trace=trace, order="fifo") if row["placement"] in placements]
    row = max(rows, key=lambda each: (float(str(each[figure])), str(each["placement"])))
    return str(row["placement"]), float(str(row[figure]))


def text() -> str:
    """Return the chapter with its picture and table."""
    result = load("goodput")
    references = {
        trace: best(result, trace, PUBLISHED, "goodput_qps")[1] for trace in ("conversation", "toolagent_like")
    }
    picture = bars.goodput(result, references, "goodput")
    rules = [(str(row["placement"]), str(row["order"])) for row in result.where(trace="conversation")]
    lines = [
        "| rule | conversation | by both | study | tool & agent | by both | study |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for placement, order in rules:
        cells = [rule_name(placement, order)]
        for trace in ("conversation", "toolagent_like"):
            row = result.find(trace=trace, placement=placement, order=order)
            study = STUDY.get((trace, placement, order))
            cells += [
                f"{row['goodput_qps']:.1f}",
                f"{row['goodput_both_qps']:.1f}",
                "" if study is None else f"{study:.1f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    ours = {
        trace: result.number("goodput_both_qps", trace=trace, placement="least_cost", order="slack")
        for trace in references
    }
    gains = {trace: ours[trace] / best(result, trace, PUBLISHED, "goodput_both_qps")[1] - 1 for trace in references}
    return f"""## Goodput

![Goodput of each rule]({picture})

*Pale: by requests. Solid: by requests and prompt tokens. Dashed: the best published rule under FIFO, by requests.*

{chr(10).join(lines)}

*Study*: an independent simulator in the same setting; the two agree where they are within 0.2 requests/s.

Every placement that serves first come, first served falls off the same cliff, for past saturation FIFO makes all requests
late at once. The order of the queue moves the cliff, the choice of the engine hardly: `least_cost + slack` sustains
{100 * gains["conversation"]:.0f} % (conversation) and {100 * gains["toolagent_like"]:.0f} % (tool & agent) more by both
measures than the best published rule, with the same caches on the same engines.

Against what the study's best rules reach (bold: reached):

{_marks_table()}
"""


def _marks_table() -> str:
    """Return which of our orders reaches each mark."""
    lines = ["| | mark | " + " | ".join(rule_name(*rule) for rule in OURS) + " |", "|---|---:|" + "---:|" * len(OURS)]
    found = [_reached(*rule) for rule in OURS]
    for number, (name, mark) in enumerate(MARKS.items()):
        write = percent if mark < 1 else "{:.1f}".format
        cells = [f"**{write(each[number])}**" if each[number] >= mark else write(each[number]) for each in found]
        lines.append(f"| {name} | {write(mark)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _reached(placement: str, order: str) -> tuple[float, ...]:
    """Return the figures of one order, in the order of the marks."""
    rule = {"placement": placement, "order": order}
    return (
        load("goodput").number("goodput_both_qps", trace="conversation", **rule),
        load("goodput").number("goodput_both_qps", trace="toolagent_like", **rule),
        load("load_curves").number("slo_share", trace="conversation", qps=14.0, **rule),
        load("defaults").number("slo_share", kind="large", qps=96.0, **rule),
    )
