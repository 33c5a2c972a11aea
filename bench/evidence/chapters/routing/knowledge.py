"""Figures of the cost of less knowledge: wrong costs and old reports."""

from __future__ import annotations

from typing import Any

from bench.evidence.measure.routing.knowledge import (
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

OLD_S = AGES_S[-1]


def cost_share(written: str, cost: str, order: str, qps: float) -> float:
    """Return the share on time under a written cost, with or without learning."""
    return load("knowledge").number("slo_share", kind="cost", written=written, cost=cost, order=order, qps=qps)


def age_share(model: str, order: str, age_s: float, good_for_s: float = ANY_S) -> float:
    """Return the share on time if reports have this age and count for `good_for_s`."""
    return load("knowledge").number(
        "slo_share", kind="age", engine_model=model, order=order, age_s=age_s, good_for_s=good_for_s
    )


def ignored(model: str, order: str) -> float:
    """Return the share on time if reports are too old for the policy to use."""
    return age_share(model, order, OLD_S, GOOD_FOR_S)


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    return {
        "publish_s": PUBLISH_INTERVAL_S,
        "cost_columns": [{"order": order, "qps": qps} for qps in COST_QPS for order in ORDERS],
        "costs": [{"written": written, "found": _costs(written)} for written in WRITTEN],
        "flat_s": WRITTEN["flat"].base_s,
        "ages": AGES_S,
        "age_loads": AGE_LOADS,
        "reports": [
            {"model": model, "order": order, "found": _ages(model, order)}
            for model in AGE_LOADS
            for order in AGE_ORDERS
        ],
        "forgetting": FORGETTING,
        "colocated": {
            "half_second": age_share("colocated", FORGETTING, 0.5),
            "one_second": age_share("colocated", FORGETTING, 1.0),
            "ignored": ignored("colocated", FORGETTING),
        },
        "fifo": {
            "fresh": age_share("colocated", "fifo", 0.0),
            "one_second": age_share("colocated", "fifo", 1.0),
            "ignored": ignored("colocated", "fifo"),
        },
        "good_for_s": GOOD_FOR_S,
    }


def _costs(written: str) -> list[float]:
    return [
        cost_share(written, cost, order, qps) for qps in COST_QPS for order in ORDERS for cost in ("fixed", "fitted")
    ]


def _ages(model: str, order: str) -> list[float]:
    return [*(age_share(model, order, age_s) for age_s in AGES_S), ignored(model, order)]
