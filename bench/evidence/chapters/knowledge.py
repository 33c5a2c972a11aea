"""Chapter: what it costs to know less: wrong costs, and old reports."""

from __future__ import annotations

from bench.evidence.claims import Claim, judged, percent
from bench.evidence.measure.knowledge import AGE_LOADS, AGES_S, COST_QPS, GOOD_FOR_S, ORDERS, WRITTEN
from bench.evidence.store import load
from simulator.cost_learning import PUBLISH_INTERVAL_S

_DEFAULT_S, _ANY_S = GOOD_FOR_S
_OLD_S = AGES_S[-1]


def cost_share(written: str, cost: str, order: str, qps: float) -> float:
    """Return the share on time under a written cost, with or without learning."""
    return load("knowledge").number("slo_share", kind="cost", written=written, cost=cost, order=order, qps=qps)


def age_share(model: str, order: str, age_s: float, good_for_s: float = _DEFAULT_S) -> float:
    """Return the share on time under reports of an age that count for so long."""
    return load("knowledge").number(
        "slo_share", kind="age", engine_model=model, order=order, age_s=age_s, good_for_s=good_for_s
    )


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
requests/s, each at the edge of its cliff. Reports of age 0 come at every event, older ones ten times a second. The policy takes
reports for {_DEFAULT_S:g} s; older ones are ignored, and the prefill window alone decides.*

Where the ledger is all there is to know, the age of reports does not matter. Where decodes fill the memory, an old report is
worse than none: under FIFO on `colocated` {percent(age_share("colocated", "fifo", AGES_S[2]))} are on time with reports {AGES_S[2]:g} s old that
still count, {percent(age_share("colocated", "fifo", _OLD_S))} with ones {_OLD_S:g} s old that do not, and
{percent(age_share("colocated", "fifo", _OLD_S, _ANY_S))} if those were taken for fresh.
"""


def claims() -> list[Claim]:
    """Return the rows of the table of verdicts."""
    qps = COST_QPS[-1]
    lost = [age_share(model, order, 0.0) - age_share(model, order, _OLD_S) for model in AGE_LOADS for order in ORDERS]
    names = [f"{model} {order}" for model in AGE_LOADS for order in ORDERS]
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
            claim=f"with own dispatches counted, reports {_OLD_S:g} s old cost less than a point on time",
            setting="conversation at the edge of saturation, three engine models, FIFO and `slack`",
            theirs="",
            ours=", ".join(f"{name} {100 * each:.1f}" for name, each in zip(names, lost, strict=True)) + " points",
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
    columns = [(age_s, _DEFAULT_S) for age_s in AGES_S]
    lines = [
        "| engines | order | "
        + " | ".join(f"{age_s:g} s old" for age_s, _ in columns)
        + f" | {_OLD_S:g} s, taken for fresh |",
        "|---|---|" + "---:|" * (len(columns) + 1),
    ]
    for model in AGE_LOADS:
        for order in ORDERS:
            cells = [percent(age_share(model, order, *column)) for column in (*columns, (_OLD_S, _ANY_S))]
            lines.append(f"| {model} | {order} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
