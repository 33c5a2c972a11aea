"""Figures that justify the defaults of a new pool."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from bench.evidence.measure.capacity.defaults import (
    LARGE,
    LARGE_LOADS,
    LOADS,
    PASSED_OVER_S,
    RULES,
    SEARCHED,
    SEEDS,
)
from bench.evidence.plots.style import rule_name
from bench.evidence.rules import FORGETTING
from bench.evidence.store import Row, load

_TRACES = {"conversation": "conversation", "toolagent_like": "tool & agent"}
_SHED, _FORGETTING, _, _LATE = RULES
_MEASURES = ("requests", "tokens", "longest")


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    gains = [
        {"model": model, "trace": _TRACES[trace], "qps": qps} | {name: _gain(trace, model, name) for name in _MEASURES}
        for (trace, model), qps in LOADS.items()
    ]
    cell = ("conversation", "reference")
    return {
        "forgetting": FORGETTING,
        "rules": [rule_name(*rule) for rule in RULES],
        "seeds": len(SEEDS),
        "large": LARGE,
        "goodput": _goodput(),
        "loads": _loads(),
        "gains": gains,
        "requests_gained": [row["requests"] for row in gains],
        "longest_gained": [row["longest"] for row in gains],
        "late_binding": [
            100 * (_shares(_at(*item, _LATE))["longest"] - _shares(_at(*item, _SHED))["longest"]) for item in LOADS
        ],
        "limits": [
            {"limit_s": limit_s, "share": _limited(_FORGETTING, limit_s)}
            for limit_s in sorted(PASSED_OVER_S, reverse=True)
        ],
        "unlimited": {"share": _shares(_at(*cell, _FORGETTING))["requests"], "qps": LOADS[cell]},
    }


def _at(trace: str, model: str, rule: tuple[str, str], seed: int = 0) -> Row:
    rows = load("defaults").where(
        kind="load", trace=trace, placement=rule[0], order=rule[1], starvation_limit_s=0.0, qps=LOADS[trace, model]
    )
    return next(row for row in rows if (row.get("engine_model", "reference"), row.get("seed", 0)) == (model, seed))


def _limited(rule: tuple[str, str], limit_s: float) -> float:
    """Return the share on time under a starvation limit."""
    return load("defaults").number(
        "slo_share", kind="load", placement=rule[0], order=rule[1], starvation_limit_s=limit_s
    )


def _shares(row: Row) -> dict[str, float]:
    """Return the shares on time of the requests, of the prompt tokens, and of the longest tenth."""
    return {"requests": row["slo_share"], "tokens": row["slo_token_share"], "longest": row["bands"][-1][1]}


def _gain(trace: str, model: str, share: str) -> float:
    """Return by how many points forgetting changes a share, over all seeds."""
    return 100 * fmean(
        _shares(_at(trace, model, _FORGETTING, seed))[share] - _shares(_at(trace, model, _SHED, seed))[share]
        for seed in SEEDS
    )


def _goodput() -> list[dict[str, Any]]:
    wanted: list[tuple[str, str, str, dict[str, str]]] = [("goodput", "reference", trace, {}) for trace in _TRACES]
    wanted += [("defaults", model, trace, {"kind": "goodput", "engine_model": model}) for trace, model in SEARCHED]
    return [
        {
            "model": model,
            "trace": _TRACES[trace],
            "found": [load(name).find(trace=trace, placement=rule[0], order=rule[1], **more) for rule in RULES],
        }
        for name, model, trace, more in wanted
    ]


def _loads() -> list[dict[str, Any]]:
    rows = [(model, trace, qps, [_at(trace, model, rule) for rule in RULES]) for (trace, model), qps in LOADS.items()]
    for qps in LARGE_LOADS:
        large = [load("defaults").find(kind="large", placement=rule[0], order=rule[1], qps=qps) for rule in RULES]
        rows.append((f"reference, {LARGE} of them", "toolagent_like", qps, large))
    return [
        {"model": model, "trace": _TRACES[trace], "qps": qps, "found": [_shares(row) for row in runs]}
        for model, trace, qps, runs in rows
    ]
