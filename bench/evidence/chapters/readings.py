"""Chapter: where the two simulators differ, and which reading of the study's text gives which of its figures."""

from __future__ import annotations

from collections.abc import Callable

from bench.evidence.chapters.goodput import STUDY
from bench.evidence.claims import percent
from bench.evidence.measure.readings import LARGER, LARGER_QPS, OF_ORDERS, RINGS
from bench.evidence.rules import FORGETTING
from bench.evidence.second_simulator.placements import Reading
from bench.evidence.store import Row, load

TRACES = ("conversation", "toolagent_like")
_ORDERS = ("shed", "slack")
_TEXT, _NOT_WAITED_FOR, _ASKED, _NOT_COMING, _NEITHER = OF_ORDERS
_NAMES = {
    _TEXT: "the text: requests given up count in a newcomer's wait",
    _NOT_WAITED_FOR: "they do not count in it (ours)",
    _ASKED: "the text, but estimates made anew each time an engine asks",
    _NOT_COMING: "the text, but their blocks do not count as on their way",
    _NEITHER: "neither their wait nor their blocks count",
}


def text() -> str:
    """Return the chapter, a part of the one on goodput."""
    rows = "\n".join(_line(reading) for reading in OF_ORDERS)
    study = " | ".join(
        f"{STUDY[trace, 'least_cost', order]:.1f} / {_BOTH[trace, order]:.1f}" for trace, order in _CELLS
    )
    ours = " | ".join(_pair(load("goodput").find(trace=t, placement="least_cost", order=o)) for t, o in _CELLS)
    rings = [_dual_map(rings) for rings in RINGS]
    return f"""### Where the study and Switchyard differ

A second simulator (`bench/evidence/second_simulator/`, a few hundred lines, no line of it shared with Switchyard's router or
engines) was written from the study's text alone, with what that text leaves open as parameters. It says which reading gives
which figure (by requests / by both; `least_cost`):

| reading | conversation, shed | slack | tool & agent, shed | slack |
|---|---:|---:|---:|---:|
| *study* | {study} |
| *Switchyard* | {ours} |
| *Switchyard*, `{FORGETTING}` | {_forgetting(TRACES[0])} | | {_forgetting(TRACES[1])} | |
{rows}

*Orders.* The study adds up the estimates of all waiting requests, also of those that its orders have given up and will serve
last. A newcomer goes before those, so it does not wait for them; counted, they turn newcomers away from engines that are free
for them. Read to the letter the second simulator comes to within {_distance(_TEXT, _study):.1f} of the study's figures, without them in
the wait to within {_distance(_NOT_WAITED_FOR, _switchyard):.1f} of ours; on tool & agent half a point on time is one request/s. Ours are
right: they are what a request really waits for.

*A gain that the study leaves.* Blocks of a request that was given up are not on their way either. As long as they count, newcomers
go where nothing is for them. `{FORGETTING}` leaves them out, and both simulators find the same for it: {_forgetting(TRACES[1])} on
tool & agent here, {_pair(_row(TRACES[1], "shed", _NEITHER))} in the second one. `slack` keeps counting them: it takes back what it
dropped when others leave, so that those blocks may come after all.

*`sglang_cache_aware`.* The rule does not say which of several engines wins that hold equally much. With the prompt deciding, as here,
the second simulator has {_sglang("request")} on tool & agent (ours {_ours("sglang_cache_aware")}), with always the first engine
{_sglang("first")}; the study's {STUDY["toolagent_like", "sglang_cache_aware", "fifo"]:.1f} is nearer to that. At {LARGER} engines and
{LARGER_QPS:g} requests/s, where the study has 2.1 % on time, it is {_larger("request")} and {_larger("first")}: the study took the
first. Ours spreads a hot prefix over its holders, which the rule allows.

*`dual_map`.* Where its rings lie decides: six places give {min(rings):.1f} to {max(rings):.1f} on tool & agent, and
the study's {STUDY["toolagent_like", "dual_map", "fifo"]:.1f} is among them; our {_ours("dual_map")} is at their edge (other keys: *The parts of DualMap*).
"""


_CELLS = tuple((trace, order) for trace in TRACES for order in _ORDERS)
_BOTH = {
    ("conversation", "shed"): 13.6,
    ("conversation", "slack"): 13.7,
    ("toolagent_like", "shed"): 26.3,
    ("toolagent_like", "slack"): 26.9,
}
"""The study's goodput by requests and prompt tokens, of `least_cost`."""


def _forgetting(trace: str) -> str:
    return _pair(load("goodput").find(trace=trace, placement="least_cost", order=FORGETTING))


def _row(trace: str, order: str, reading: Reading) -> Row:
    return load("readings").find(
        trace=trace,
        placement="least_cost",
        order=order,
        hopeless_wait=reading.hopeless_wait,
        hopeless_coming=reading.hopeless_coming,
        estimates=reading.estimates,
    )


def _study(trace: str, order: str) -> tuple[float, float]:
    return STUDY[trace, "least_cost", order], _BOTH[trace, order]


def _switchyard(trace: str, order: str) -> tuple[float, float]:
    row = load("goodput").find(trace=trace, placement="least_cost", order=order)
    return float(str(row["goodput_qps"])), float(str(row["goodput_both_qps"]))


def _distance(reading: Reading, of: Callable[[str, str], tuple[float, float]]) -> float:
    """Return the largest difference of a reading's figures from others, requests/s."""
    rows = {(trace, order): _row(trace, order, reading) for trace, order in _CELLS}
    return max(
        abs(float(str(rows[cell][name])) - figure)
        for cell in _CELLS
        for name, figure in zip(("goodput_qps", "goodput_both_qps"), of(*cell), strict=True)
    )


def _pair(row: Row) -> str:
    return f"{row['goodput_qps']:.1f} / {row['goodput_both_qps']:.1f}"


def _line(reading: Reading) -> str:
    return f"| {_NAMES[reading]} | " + " | ".join(_pair(_row(trace, order, reading)) for trace, order in _CELLS) + " |"


def _sglang(ties: str) -> str:
    found = load("readings").number(
        "goodput_qps", trace=TRACES[1], placement="sglang_cache_aware", engines=8, ties=ties, sent="new"
    )
    return f"{found:.1f}"


def _larger(ties: str) -> str:
    return percent(load("readings").number("slo_share", engines=LARGER, ties=ties))


def _dual_map(rings: int) -> float:
    return load("readings").number("goodput_qps", trace=TRACES[1], placement="dual_map", rings=rings)


def _ours(placement: str) -> str:
    return f"{load('goodput').number('goodput_qps', trace=TRACES[1], placement=placement, order='fifo'):.1f}"
