"""Chapter: larger fleets (DualMap A.4, Fig. 13)."""

from __future__ import annotations

from bench.evidence.chapters import keys
from bench.evidence.claims import percent
from bench.evidence.measure.scale import POINTS, RULES, SIZES
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
"""Shares on time that an independent simulator found."""


def on_time(engines: int, qps: float, placement: str, order: str = "fifo") -> float:
    """Return the share of requests on time."""
    return load("scale").number(
        "slo_share", kind="load", engines=engines, qps=qps, placement=placement, order=order
    )  # fmt: skip


def goodput(engines: int, placement: str, order: str = "fifo") -> float:
    """Return the largest rate with 90 % on time."""
    return load("scale").number("goodput_qps", kind="goodput", engines=engines, placement=placement, order=order)


def text() -> str:
    """Return the chapter with its picture and tables."""
    result = load("scale")
    picture = plots.over_size(result, RULES, SIZES, SAME_LOAD, "scale")
    sizes = result.settings["requests"]
    counts = ", ".join(f"{int(sizes[str(size)]):,}" for size in SIZES) if isinstance(sizes, dict) else ""
    times = {
        rule: goodput(SIZES[-1], rule) / goodput(SIZES[0], rule) for rule in ("cache_affinity", "preble", "least_cost")
    }
    return f"""## Larger fleets

![Goodput and on-time share over the size of the fleet]({picture})

*Tool & agent, 8, 16 and 32 engines with the first {counts} requests: 1,000 an engine, as in the paper, as far as the trace has
them.*

{_goodput_table()}

Shares on time; *study*: an independent simulator.

{_share_table()}

A larger fleet bears more per engine, for caches add up while the prefixes stay the same: four times the engines have
{times["least_cost"]:.1f} times the goodput under `least_cost`. Rules that send a prefix to one engine do not share in that. {percent(keys.PAPER["13"], 0)} of the requests
have one prefix, and `cache_affinity` gets {times["cache_affinity"]:.1f} times, `preble` {times["preble"]:.1f} times its goodput of 8 engines.

The two simulators agree but for `sglang_cache_aware`. Its rule does not say which of several engines wins that hold equally
much; here the prompt decides, so that requests of a hot prefix spread over its holders. If always the first of them won, ours would
collapse as the study's does. The time that a decision takes is no subject of a simulation in virtual time; `python -m
bench.decision` measures it.
"""


def _goodput_table() -> str:
    lines = ["| goodput, requests/s | " + " | ".join(f"{size} engines" for size in SIZES) + " | 32 over 8 |"]
    lines.append("|---|" + "---:|" * (len(SIZES) + 1))
    for rule in RULES:
        found = [goodput(size, *rule) for size in SIZES]
        lines.append(
            f"| {rule_name(*rule)} | "
            + " | ".join(f"{each:.1f}" for each in found)
            + f" | {found[-1] / found[0]:.1f} × |"
        )
    return "\n".join(lines)


def _share_table() -> str:
    head = " | ".join(f"{engines} engines, {qps:g}/s" + (" | study" if engines > 8 else "") for engines, qps in POINTS)
    lines = [f"| rule | {head} |", "|---|" + "---:|" * (2 * len(POINTS) - 1)]
    for rule in RULES:
        cells = [rule_name(*rule)]
        for engines, qps in POINTS:
            cells.append(percent(on_time(engines, qps, *rule)))
            if engines > SIZES[0]:
                study = STUDY.get((engines, qps, *rule))
                cells.append("" if study is None else percent(study))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
