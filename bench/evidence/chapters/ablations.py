"""Chapter: which parts of DualMap do what (DualMap §4.3, A.9)."""

from __future__ import annotations

from bench.evidence.claims import percent
from bench.evidence.measure import choices
from bench.evidence.measure.ablations import (
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
"""The load of the table: close below where DualMap's goodput ends."""
PAST = {"conversation": 11.0, "toolagent_like": 19.0}
"""The load just past it."""
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
"""Goodput by requests that an independent simulator found."""


def at(trace: str, label: str, qps: float, figure: str) -> float:
    """Return a figure of one configuration at one load."""
    return load("ablations").number(figure, kind="load", trace=trace, label=label, qps=qps)


def goodput(trace: str, label: str) -> float:
    """Return the largest rate with 90 % on time."""
    return load("ablations").number("goodput_qps", kind="goodput", trace=trace, label=label)


def over_all(trace: str, placement: str) -> float:
    """Return the goodput of a rule that may choose among all engines."""
    return load("goodput").number("goodput_qps", trace=trace, placement=placement, order="fifo")


def deviation(bins: str, d: int, engines: int) -> float:
    """Return how far the fullest engine is above the mean of balls in bins."""
    return load("choices").number("max_deviation", bins=bins, d=d, engines=engines)


def goodputs_of_keys(trace: str, label: str) -> list[float]:
    """Return the goodput with each other set of keys, and so of places on the rings."""
    rows = load("ablations").where(kind="keys", trace=trace, label=label)
    return sorted(float(str(row["goodput_qps"])) for row in rows)


def text() -> str:
    """Return the chapter with its pictures."""
    latency = plots.over_load(load("ablations"), tuple(PAPER), "ablations")
    points = {
        trace: {
            selection: [(d, goodput(trace, choice_name(selection, d))) for d in CHOICES] for selection in CHOICE_RULES
        }
        for trace in LOADS
    }
    references = {trace: {name: over_all(trace, name) for name in ("min_ttft", "least_cost")} for trace in LOADS}
    candidates = plots.over_choices(points, references, "candidates")
    balls = plots.balls(load("choices"), choices.CHOICES, choices.SIZES, "balls_in_bins")
    past = {d: percent(at("conversation", choice_name("slo", d), PAST["conversation"], "slo_share")) for d in CHOICES}
    return f"""## The parts of DualMap

![TTFT of DualMap's variants]({latency})

*The five configurations of DualMap's Fig. 5; `affinity`, `least_loaded` and `min_ttft` choose between the two candidates and do
not rebalance. Dashed: the SLO.*

{_table()}

*P50 / P90 of TTFT, hits and CV at {SHOWN["conversation"]:g} (conversation) and {SHOWN["toolagent_like"]:g} requests/s (tool &
agent). Everything not named is DualMap's: two candidates, 100 virtual nodes, adaptive keys, SLO switch, rebalancing. Study: an
independent simulator, whose rings lie elsewhere.*

Affinity between the two queues longest and `least_loaded` hits least, as in the paper. The SLO switch keeps more hits
than `min_ttft` as long as the SLO holds; past it both candidates are late, the switch chooses by load alone, and `min_ttft`
sustains more. Rebalancing hardly ever finds a request to move: by the time both candidates are overloaded, the other one misses
the SLO as well. (The paper's Fig. 5 is of a 14B model with prompts of up to 10,240 tokens; this is the setting of its 7B model.)

**Rings.** Where the hot prefixes fall is luck. With {LUCK_SEEDS} other sets of keys the goodput of DualMap is
{_range("conversation", FULL)} on conversation and {_range("toolagent_like", FULL)} on tool & agent; with one anchor per engine, as §3.4
of the paper describes, {_range("conversation", ONE_NODE)} and {_range("toolagent_like", ONE_NODE)}.

**Candidates.** Goodput over the number of rings:

![Goodput over the number of candidates]({candidates})

*Dashed: the same choice among all engines, and `least_cost`, whose cost is weighed for all holders of a prefix; it has no
parameter that would restrict it to d.*

Two candidates bring nearly all that candidates can bring. With DualMap's switch more of them make the fall deeper: with 2, 3 and
4 candidates {past[2]}, {past[3]} and {past[4]} are on time at {PAST["conversation"]:g} requests/s of conversation, as requests that are
late anyway spread a prefix over all of its candidates. With a choice by estimated time more candidates do no harm.

**Balls in bins.** A.9 argues for two candidates by the even filling of bins, caches left aside:

![Balls in bins]({balls})

*1,000 keys per engine, each put on the emptiest of its candidates; mean of {load("choices").settings["seeds"]} seeds.*

The second candidate takes almost all of the imbalance away, the third adds nothing that matters. That holds for candidates by
chance and for rings with 100 virtual nodes; with one node per engine the arcs are so uneven that two candidates do not
suffice.
"""


def _range(trace: str, label: str) -> str:
    found = goodputs_of_keys(trace, label)
    return f"{found[0]:.1f} to {found[-1]:.1f}"


def _table() -> str:
    lines = [
        "| configuration | conversation goodput | study | TTFT | hits | CV | tool & agent goodput | study | TTFT | hits | CV |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for label in (*PAPER, *KEYS_AND_RINGS):
        cells = [label]
        for trace, qps in SHOWN.items():
            study = STUDY.get((trace, label))
            cells += [
                f"{goodput(trace, label):.1f}",
                "" if study is None else f"{study:.1f}",
                f"{at(trace, label, qps, 'ttft_p50_s'):.2f} / {at(trace, label, qps, 'ttft_p90_s'):.2f} s",
                percent(at(trace, label, qps, "token_hit_rate")),
                f"{at(trace, label, qps, 'mean_cv'):.2f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
