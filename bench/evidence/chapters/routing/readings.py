"""Figures of the differences between the two simulators, and the interpretation of the study behind each figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.evidence.chapters.routing.goodput import STUDY, TRACES
from bench.evidence.measure.routing.readings import LARGER, LARGER_QPS, OF_ORDERS, RINGS
from bench.evidence.rules import FORGETTING
from bench.evidence.second_simulator.placements import Reading
from bench.evidence.store import Row, load

_ORDERS = ("late_last", "slack")
_TEXT, _NOT_WAITED_FOR, _ASKED, _NOT_COMING, _NEITHER = OF_ORDERS
_NAMES = {
    _TEXT: "the text: given-up requests count in a new request's wait",
    _NOT_WAITED_FOR: "they do not count (ours)",
    _ASKED: "the text, but estimates are repeated each time an engine asks",
    _NOT_COMING: "the text, but their blocks do not count as on their way",
    _NEITHER: "neither their wait nor their blocks count",
}


def figures() -> dict[str, Any]:
    """Return the figures of the text, a part of the chapter on goodput."""
    return {
        "study": [_study(*cell) for cell in _CELLS],
        "headway": [_headway(*cell) for cell in _CELLS],
        "forgetting": {trace: _headway(trace, FORGETTING) for trace in TRACES},
        "readings": [
            {"name": name, "found": [_pair(_row(*cell, reading)) for cell in _CELLS]}
            for reading, name in _NAMES.items()
        ],
        "apart": {"study": _distance(_TEXT, _study), "headway": _distance(_NOT_WAITED_FOR, _headway)},
        "neither": _pair(_row(TRACES[1], "late_last", _NEITHER)),
        "sglang": _figures_of("sglang_cache_aware") | {ties: _sglang(ties) for ties in ("request", "first")},
        "dual_map": _figures_of("dual_map"),
        "rings": [_dual_map(rings) for rings in RINGS],
        "larger": {"engines": LARGER, "qps": LARGER_QPS} | {ties: _larger(ties) for ties in ("request", "first")},
    }


_CELLS = tuple((trace, order) for trace in TRACES for order in _ORDERS)
_BOTH = {
    ("conversation", "late_last"): 13.6,
    ("conversation", "slack"): 13.7,
    ("toolagent_like", "late_last"): 26.3,
    ("toolagent_like", "slack"): 26.9,
}
"""The study's goodput by requests and prompt tokens, of `least_cost`."""


def _row(trace: str, order: str, reading: Reading) -> Row:
    return load("readings").find(
        trace=trace,
        placement="least_cost",
        order=order,
        infeasible_wait=reading.infeasible_wait,
        infeasible_coming=reading.infeasible_coming,
        estimates=reading.estimates,
    )


def _study(trace: str, order: str) -> tuple[float, float]:
    return STUDY[trace, "least_cost", order], _BOTH[trace, order]


def _headway(trace: str, order: str) -> tuple[float, float]:
    return _pair(load("goodput").find(trace=trace, placement="least_cost", order=order))


def _pair(row: Row) -> tuple[float, float]:
    return row["goodput_qps"], row["goodput_both_qps"]


def _distance(reading: Reading, of: Callable[[str, str], tuple[float, float]]) -> float:
    """Return the largest difference between the figures of two readings, in requests/s."""
    return max(
        abs(ours - figure)
        for cell in _CELLS
        for ours, figure in zip(_pair(_row(*cell, reading)), of(*cell), strict=True)
    )


def _sglang(ties: str) -> float:
    return load("readings").number(
        "goodput_qps", trace=TRACES[1], placement="sglang_cache_aware", engines=8, ties=ties, sent="new"
    )


def _larger(ties: str) -> float:
    return load("readings").number("slo_share", engines=LARGER, ties=ties)


def _dual_map(rings: int) -> float:
    return load("readings").number("goodput_qps", trace=TRACES[1], placement="dual_map", rings=rings)


def _figures_of(placement: str) -> dict[str, float]:
    ours = load("goodput").number("goodput_qps", trace=TRACES[1], placement=placement, order="fifo")
    return {"ours": ours, "study": STUDY[TRACES[1], placement, "fifo"]}
