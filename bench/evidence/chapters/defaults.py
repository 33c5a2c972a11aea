"""Chapter: what decides the default of a new pool."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from bench.evidence.claims import percent
from bench.evidence.measure.defaults import LARGE, LARGE_LOADS, LOADS, PASSED_OVER_S, RULES, SEARCHED, SEEDS
from bench.evidence.plots.style import rule_name
from bench.evidence.rules import FORGETTING
from bench.evidence.store import Row, load

_TRACES = {"conversation": "conversation", "toolagent_like": "tool & agent"}
_SHED, _FORGETTING, _SLACK, _LATE = RULES


def text() -> str:
    """Return the chapter."""
    changes = [100 * (_longest(_at(*cell, _LATE)) - _longest(_at(*cell, _SHED))) for cell in LOADS]
    gains = [_gain(*cell, _requests) for cell in LOADS]
    longest = [_gain(*cell, _longest) for cell in LOADS]
    bounds = ", ".join(
        f"{percent(_bounded(_FORGETTING, bound_s))} with {bound_s:g} s"
        for bound_s in sorted(PASSED_OVER_S, reverse=True)
    )
    return f"""## What a new pool does

Three orders give up what cannot be on time: `shed`, `slack`, and `late_binding`, where engines pull from one queue of the whole
pool. `{FORGETTING}` (`forget_blocks`) counts the blocks of a ticket that it gave up no longer as on their way to its engine, as
newcomers go before that ticket. Goodput by requests / by both, as far as it was searched:

{_goodput_table()}

Past the cliff of FIFO, share of the requests / of the prompt tokens on time, and of the longest tenth of the prompts:

{_load_table()}

What forgetting changes in this, points, mean of {len(SEEDS)} seeds, that is, of as many ways to break ties:

{_gain_table()}

Forgetting gains {min(gains):+.1f} to {max(gains):+.1f} points on time, most where prompts share much: a newcomer that counts on blocks
which nobody is about to compute joins the queue that gave them up. The longest tenth has {min(longest):+.1f} to {max(longest):+.1f} points.

`late_binding` has the most requests on time with 8 engines, though with {LARGE} of them no more than `{FORGETTING}`. Who pays are the longest
prompts: against `shed` their share differs by {min(changes):+.1f} to {max(changes):+.1f} points. `slack` gains on `shed` where one prompt prefills at a
time, and loses to it under `chunked`. A bound on how long a ticket may be passed over is no remedy under overload, for it brings
what is late already back to the front: with `{FORGETTING}` {bounds},
{percent(_requests(_at("conversation", "reference", _FORGETTING)))} without (conversation, {LOADS["conversation", "reference"]:g} requests/s).

A new pool starts with `{FORGETTING}`: docs/decisions/0012-default-of-a-new-pool.md weighs this.
"""


def _at(trace: str, model: str, rule: tuple[str, str], seed: int = 0) -> Row:
    rows = load("defaults").where(
        kind="load", trace=trace, placement=rule[0], order=rule[1], max_passed_over_s=0.0, qps=LOADS[trace, model]
    )
    return next(row for row in rows if (row.get("engine_model", "reference"), row.get("seed", 0)) == (model, seed))


def _bounded(rule: tuple[str, str], bound_s: float) -> float:
    return load("defaults").number(
        "slo_share", kind="load", placement=rule[0], order=rule[1], max_passed_over_s=bound_s
    )


def _requests(row: Row) -> float:
    return float(str(row["slo_share"]))


def _tokens(row: Row) -> float:
    return float(str(row["slo_token_share"]))


def _longest(row: Row) -> float:
    bands = row["bands"]
    if not isinstance(bands, list):
        raise TypeError("bands are no list")
    return float(bands[-1][1])


def _gain(trace: str, model: str, share: Callable[[Row], float]) -> float:
    """Return by how many points forgetting changes a share, over all seeds."""
    return 100 * fmean(
        share(_at(trace, model, _FORGETTING, seed)) - share(_at(trace, model, _SHED, seed)) for seed in SEEDS
    )


def _goodput_table() -> str:
    lines = ["| engines | trace | " + " | ".join(rule_name(*rule) for rule in RULES) + " |"]
    lines.append("|---|---|" + "---:|" * len(RULES))
    for trace, name in _TRACES.items():
        rows = [load("goodput").find(trace=trace, placement=placement, order=order) for placement, order in RULES]
        lines.append(f"| reference | {name} | " + " | ".join(_pair(row) for row in rows) + " |")
    for trace, model in SEARCHED:
        rows = [
            load("defaults").find(kind="goodput", trace=trace, engine_model=model, placement=placement, order=order)
            for placement, order in RULES
        ]
        lines.append(f"| {model} | {_TRACES[trace]} | " + " | ".join(_pair(row) for row in rows) + " |")
    return "\n".join(lines)


def _pair(row: Row) -> str:
    return f"{row['goodput_qps']:.1f} / {row['goodput_both_qps']:.1f}"


def _load_table() -> str:
    head = "".join(f" {rule_name(*rule)} | longest |" for rule in RULES)
    lines = ["| engines | trace | requests/s |" + head, "|---|---|---:|" + "---:|---:|" * len(RULES)]
    for (trace, model), qps in LOADS.items():
        cells = [_cells(_at(trace, model, rule)) for rule in RULES]
        lines.append(f"| {model} | {_TRACES[trace]} | {qps:g} | " + " | ".join(cells) + " |")
    for qps in LARGE_LOADS:
        large = [
            load("defaults").find(kind="large", placement=placement, order=order, qps=qps) for placement, order in RULES
        ]
        lines.append(
            f"| reference, {LARGE} of them | {_TRACES['toolagent_like']} | {qps:g} | "
            + " | ".join(_cells(row) for row in large)
            + " |"
        )
    return "\n".join(lines)


def _cells(row: Row) -> str:
    return f"{percent(_requests(row))} / {percent(_tokens(row))} | {percent(_longest(row))}"


def _gain_table() -> str:
    lines = [
        "| engines | trace | requests/s | on time | of the tokens | longest tenth |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (trace, model), qps in LOADS.items():
        cells = [f"{_gain(trace, model, share):+.1f}" for share in (_requests, _tokens, _longest)]
        lines.append(f"| {model} | {_TRACES[trace]} | {qps:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
