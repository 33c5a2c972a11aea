"""Figures of a prefix that becomes hot, and the effect of additional candidates (DualMap §3.3, A.9)."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from bench.evidence.measure.automation.rebalance import ENGINES, HOT_FROM_S, HOT_SHARE, HOT_TO_S, QPS
from bench.evidence.store import Row, load

NAMES = {False: "fixed key", True: "adaptive key"}


def rows(*, adaptive: bool, rebalance: bool) -> list[Row]:
    """Return the runs of all seeds."""
    return load("rebalance").where(adaptive=adaptive, rebalance=rebalance)


def mean(figure: str, *, adaptive: bool, rebalance: bool) -> float:
    """Return the mean of a figure over the seeds."""
    return fmean(row[figure] for row in rows(adaptive=adaptive, rebalance=rebalance))


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    columns = ("on_time", "ttft_p90_s", "hits", "mean_cv", "migrations", "widened", "still_wide")
    rows = [
        {"name": f"{name}, rebalancing" if rebalance else name}
        | {column: mean(column, adaptive=adaptive, rebalance=rebalance) for column in columns}
        for adaptive, name in NAMES.items()
        for rebalance in (False, True)
    ]
    return {
        "from_s": HOT_FROM_S,
        "to_s": HOT_TO_S,
        "share": HOT_SHARE,
        "qps": QPS,
        "engines": ENGINES,
        "rows": rows,
    }
