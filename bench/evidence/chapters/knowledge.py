"""Chapter: what it costs to know less: wrong costs, and old reports."""

from __future__ import annotations

from bench.evidence.claims import Claim, judged, percent
from bench.evidence.measure.knowledge import (
    AGE_LOADS,
    AGE_ORDERS,
    AGES_S,
    ANY_S,
    COST_QPS,
    GOOD_FOR_S,
    ORDERS,
    WRITTEN,
)
from bench.evidence.rules import FORGETTING
from bench.evidence.store import load
from simulator.fleet.cost_learning import PUBLISH_INTERVAL_S

_OLD_S = AGES_S[-1]


def cost_share(written: str, cost: str, order: str, qps: float) -> float:
    """Return the share on time under a written cost, with or without learning."""
    return load("knowledge").number("slo_share", kind="cost", written=written, cost=cost, order=order, qps=qps)


def age_share(model: str, order: str, age_s: float, good_for_s: float = ANY_S) -> float:
    """Return the share on time under reports of an age, where reports count for so long."""
    return load("knowledge").number(
        "slo_share", kind="age", engine_model=model, order=order, age_s=age_s, good_for_s=good_for_s
    )


def _ignored(model: str, order: str) -> float:
    """Return the share on time where reports are so old that the policy does not take them."""
    return age_share(model, order, _OLD_S, GOOD_FOR_S)


def text() -> str:
    """Return the chapter."""
    return f"""## What it costs to know less

**Wrong costs.** The router estimates prefills by a formula that the policy writes down, or (`cost: fitted`) by what its
requests have taken, published every {PUBLISH_INTERVAL_S:g} s as a gateway does. Conversation, `least_cost`, on time:

{_cost_table()}

*A quarter: all coefficients a quarter of the truth. Flat: {WRITTEN["flat"].base_s:g} s for any prompt, cached or not.*

A cost that is wrong by a factor leaves the choice of engines as it is; the orders pay, for they take what is late to be on
time. A cost that sees no worth in a hit loses the caches, and with them the fleet's capacity. Learning undoes both.

**Old reports.** Load is the router's own ledger, hits are the index, and first tokens are seen as they pass; engines' reports
add how many requests they have not started and how much memory is left. Conversation, `least_cost`, on time:

{_age_table()}

*`reference` engines at {AGE_LOADS["reference"]:g}, `colocated` at {AGE_LOADS["colocated"]:g}, `chunked` at {AGE_LOADS["chunked"]:g}
requests/s, each at the edge of its cliff. Reports of age 0 come at every event, older ones ten times a second. Taken for fresh,
but for the last column: there reports are ignored, and the prefill window alone decides.*

Where the ledger is all there is to know, the age of reports does not matter. Where decodes fill the memory, fresh reports keep
prompts at the gateway, where the order can still choose among them, until there is room; old ones keep an engine waiting that
has had room for as long as they are old. With an order that gives requests up they are worth having up to half a second
({percent(age_share("colocated", FORGETTING, 0.5))} on time with `{FORGETTING}` on `colocated`, {percent(_ignored("colocated", FORGETTING))} without any), and worth less than none at one second
({percent(age_share("colocated", FORGETTING, 1.0))}). FIFO has nothing to choose, so that every age costs it: {percent(age_share("colocated", "fifo", 0.0))} with fresh ones,
{percent(age_share("colocated", "fifo", 1.0))} at one second, {percent(_ignored("colocated", "fifo"))} without. Hence a policy takes reports for {GOOD_FOR_S:g} s unless it says otherwise: a gateway
reads them ten times a second, so that a few may be missed.
"""


def claims() -> list[Claim]:
    """Return the rows of the table of verdicts."""
    qps = COST_QPS[-1]
    lost = [age_share(model, order, 0.0) - _ignored(model, order) for model in AGE_LOADS for order in AGE_ORDERS]
    trusted = [
        (age_share(model, order, 0.0) - age_share(model, order, _OLD_S), f"{model} {order}")
        for model in AGE_LOADS
        for order in AGE_ORDERS
    ]
    names = [f"{model} {order}" for model in AGE_LOADS for order in AGE_ORDERS]
    right, learned = cost_share("right", "fixed", "slack", qps), cost_share("flat", "fitted", "slack", qps)
    return [
        Claim(
            source="ours",
            claim="learned costs make up for wrong written ones",
            setting=f"conversation, {qps:g} requests/s, `least_cost` + `slack`, written cost blind to hits",
            theirs="",
            ours=f"on time {percent(cost_share('flat', 'fixed', 'slack', qps))} as written, {percent(learned)} learned, "
            f"{percent(right)} with the truth written down",
            verdict=judged(
                reproduced=right - learned < 0.02, partly=learned > cost_share("flat", "fixed", "slack", qps)
            ),
            why="fifty prefills are enough for the fit, and come in seconds",
        ),
        Claim(
            source="ours",
            claim=f"with own dispatches counted and too old reports ignored, reports {_OLD_S:g} s old cost less than a point on time",
            setting="conversation at the edge of saturation, three engine models, "
            + ", ".join(f"`{each}`" for each in AGE_ORDERS),
            theirs="",
            ours=", ".join(f"{name} {100 * each:.1f}" for name, each in zip(names, lost, strict=True)) + " points; "
            f"taken at their word up to {100 * max(trusted)[0]:.1f} ({max(trusted)[1]})",
            verdict=judged(reproduced=max(lost) < 0.01, partly=sorted(lost)[len(lost) // 2] < 0.01),
            why="prefill load is known without them; how much memory decodes have left is not",
        ),
    ]


def _cost_table() -> str:
    lines = [
        "| written cost | "
        + " | ".join(f"{order}, {qps:g}/s: as written | learned" for qps in COST_QPS for order in ORDERS)
        + " |",
        "|---|" + "---:|---:|" * (len(COST_QPS) * len(ORDERS)),
    ]
    for written in WRITTEN:
        cells = [
            percent(cost_share(written, cost, order, qps))
            for qps in COST_QPS
            for order in ORDERS
            for cost in ("fixed", "fitted")
        ]
        lines.append(f"| {written} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _age_table() -> str:
    lines = [
        "| engines | order | " + " | ".join(f"{age_s:g} s old" for age_s in AGES_S) + " | ignored |",
        "|---|---|" + "---:|" * (len(AGES_S) + 1),
    ]
    for model in AGE_LOADS:
        for order in AGE_ORDERS:
            cells = [percent(age_share(model, order, age_s)) for age_s in AGES_S]
            cells.append(percent(_ignored(model, order)))
            lines.append(f"| {model} | {order} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
