"""Chapter: what decides the default of a new pool."""

from __future__ import annotations

from bench.evidence.claims import percent
from bench.evidence.measure.defaults import LARGE, LARGE_QPS, LOADS, PASSED_OVER_S, RULES, SEARCHED
from bench.evidence.plots.style import rule_name
from bench.evidence.store import Row, load

_TRACES = {"conversation": "conversation", "toolagent_like": "tool & agent"}
_SLACK, _LATE, _SHED = RULES


def text() -> str:
    """Return the chapter."""
    changes = [
        100 * (_longest(_at(trace, model, _LATE)) - _longest(_at(trace, model, _SHED))) for trace, model in LOADS
    ]
    bounds = ", ".join(
        f"{percent(_bounded(_LATE, bound_s))} with {bound_s:g} s" for bound_s in sorted(PASSED_OVER_S, reverse=True)
    )
    return f"""## What a new pool does

Three orders give up what cannot be on time: `shed`, `slack`, and `late_binding`, where engines pull from one queue of the whole
pool. Goodput by requests / by both, as far as it was searched (`shed` on `reference` engines is in the table of *Goodput*):

{_goodput_table()}

Past the cliff of FIFO, share of the requests / of the prompt tokens on time, and of the longest tenth of the prompts:

{_load_table()}

`late_binding` has the most requests on time everywhere, though with {LARGE} engines hardly more than `shed`. Who pays are the longest prompts: against `shed` their share differs by
{min(changes):+.1f} to {max(changes):+.1f} points, and it is better on `chunked` engines only. A bound on how long a ticket may be
passed over is no remedy under overload, for it brings what is late already back to the front: {bounds},
{percent(_share(_at("conversation", "reference", _LATE)))} without (conversation, {LOADS["conversation", "reference"]:g} requests/s). `slack` gains on
`shed` where one prompt prefills at a time, and loses to it under `chunked`.

A new pool keeps `shed`: docs/decisions/0012-default-of-a-new-pool.md weighs this.
"""


def _at(trace: str, model: str, rule: tuple[str, str]) -> Row:
    rows = load("defaults").where(
        kind="load", trace=trace, placement=rule[0], order=rule[1], max_passed_over_s=0.0, qps=LOADS[trace, model]
    )
    return next(row for row in rows if row.get("engine_model", "reference") == model)


def _bounded(rule: tuple[str, str], bound_s: float) -> float:
    return load("defaults").number(
        "slo_share", kind="load", placement=rule[0], order=rule[1], max_passed_over_s=bound_s
    )


def _share(row: Row) -> float:
    return float(str(row["slo_share"]))


def _longest(row: Row) -> float:
    bands = row["bands"]
    if not isinstance(bands, list):
        raise TypeError("bands are no list")
    return float(bands[-1][1])


def _goodput_table() -> str:
    rules = (_SLACK, _LATE)
    lines = ["| engines | trace | " + " | ".join(rule_name(*rule) for rule in rules) + " |", "|---|---|---:|---:|"]
    for trace, name in _TRACES.items():
        rows = [load("goodput").find(trace=trace, placement=placement, order=order) for placement, order in rules]
        lines.append(f"| reference | {name} | " + " | ".join(_pair(row) for row in rows) + " |")
    for trace, model in SEARCHED:
        rows = [
            load("defaults").find(kind="goodput", trace=trace, engine_model=model, placement=placement, order=order)
            for placement, order in rules
        ]
        lines.append(f"| {model} | {_TRACES[trace]} | " + " | ".join(_pair(row) for row in rows) + " |")
    return "\n".join(lines)


def _pair(row: Row) -> str:
    return f"{row['goodput_qps']:.1f} / {row['goodput_both_qps']:.1f}"


def _load_table() -> str:
    head = "".join(f" {rule_name(*rule)} | longest |" for rule in (_SHED, _SLACK, _LATE))
    lines = ["| engines | trace | requests/s |" + head, "|---|---|---:|" + "---:|---:|" * 3]
    for (trace, model), qps in LOADS.items():
        cells = [_cells(_at(trace, model, rule)) for rule in (_SHED, _SLACK, _LATE)]
        lines.append(f"| {model} | {_TRACES[trace]} | {qps:g} | " + " | ".join(cells) + " |")
    large = [
        load("defaults").find(kind="large", placement=placement, order=order)
        for placement, order in (_SHED, _SLACK, _LATE)
    ]
    lines.append(
        f"| reference, {LARGE} of them | {_TRACES['toolagent_like']} | {LARGE_QPS:g} | "
        + " | ".join(_cells(row) for row in large)
        + " |"
    )
    return "\n".join(lines)


def _cells(row: Row) -> str:
    return f"{percent(_share(row))} / {percent(float(str(row['slo_token_share'])))} | {percent(_longest(row))}"
