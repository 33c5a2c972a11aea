"""Our claims: queue orders, virtual nodes, SLO-infeasible requests, knowledge, hot prefixes, sick engines."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from bench.evidence.chapters.automation import automation_live, health, rebalance
from bench.evidence.chapters.capacity import admission
from bench.evidence.chapters.routing import knowledge
from bench.evidence.chapters.routing.ablations import ONE_NODE, goodput, goodputs_of_keys
from bench.evidence.chapters.routing.goodput import TRACES
from bench.evidence.measure.automation.health import ENGINES, KINDS
from bench.evidence.measure.automation.rebalance import ENGINES as HOT_ENGINES
from bench.evidence.measure.automation.rebalance import HOT_SHARE
from bench.evidence.measure.capacity import overload
from bench.evidence.measure.routing.ablations import FULL
from bench.evidence.measure.routing.knowledge import AGE_LOADS, AGE_ORDERS, COST_QPS
from bench.evidence.store import load
from bench.evidence.verdicts.dualmap import point
from bench.evidence.verdicts.verdict import Judged, judged

_DETECTED_WITHIN_S, _DETECTED_LIVE_WITHIN_S = 60.0, 15.0


def claims() -> dict[str, Any]:
    """Return all claims by name."""
    return {
        "order": order(),
        "virtual_nodes": virtual_nodes(),
        "infeasible": infeasible(),
        "learned": learned_costs(),
        "reports": old_reports(),
        "hot_prefix": hot_prefix(),
        "sick": sick_engines(),
        "healthy": healthy_engines(),
        "sick_live": sick_engines_live(),
    }


def order() -> Judged:
    """Queue orders under one placement."""
    fifo, late_last, slack = (
        point("conversation", 12.0, "least_cost", name)["slo_share"] for name in ("fifo", "late_last", "slack")
    )
    return {"shares": [fifo, late_last, slack], "verdict": judged(reproduced=min(late_last, slack) > fifo + 0.1)}


def virtual_nodes() -> Judged:
    """Mean goodput over sets of keys with one virtual node per engine and with 100."""
    goodputs = [
        [fmean([goodput(trace, label), *goodputs_of_keys(trace, label)]) for label in (ONE_NODE, FULL)]
        for trace in TRACES
    ]
    losses = [1 - one / hundred for one, hundred in goodputs]
    return {"found": goodputs, "verdict": judged(reproduced=min(losses) > 0.08, partly=max(losses) > 0.02)}


def infeasible() -> Judged:
    """Rejection of requests that can no longer meet their SLO."""
    served, rejected = (load("overload").find(kind="infeasible", order="slack", on=on) for on in (False, True))
    gains = admission.seed_gains("infeasible", order="slack")
    return {
        "qps": overload.PAST_SATURATION_QPS,
        "served": served,
        "rejected": rejected,
        "verdict": judged(reproduced=min(gains) > 0.0),
    }


def learned_costs() -> Judged:
    """Learned costs against configured ones that ignore hits."""
    qps = COST_QPS[-1]
    written = knowledge.cost_share("flat", "fixed", "slack", qps)
    learned = knowledge.cost_share("flat", "fitted", "slack", qps)
    right = knowledge.cost_share("right", "fixed", "slack", qps)
    verdict = judged(reproduced=right - learned < 0.02, partly=learned > written)
    return {"qps": qps, "shares": [written, learned, right], "verdict": verdict}


def old_reports() -> Judged:
    """The cost of ignoring outdated reports, and of using them as if fresh."""
    cells = [(model, order) for model in AGE_LOADS for order in AGE_ORDERS]
    fresh = [knowledge.age_share(*cell, 0.0) for cell in cells]
    lost = [now - knowledge.ignored(*cell) for now, cell in zip(fresh, cells, strict=True)]
    taken = [
        (now - knowledge.age_share(*cell, knowledge.OLD_S), " ".join(cell))
        for now, cell in zip(fresh, cells, strict=True)
    ]
    return {
        "old_s": knowledge.OLD_S,
        "orders": AGE_ORDERS,
        "lost": [{"name": " ".join(cell), "points": 100 * loss} for cell, loss in zip(cells, lost, strict=True)],
        "worst": {"points": 100 * max(taken)[0], "name": max(taken)[1]},
        "verdict": judged(reproduced=max(lost) < 0.01, partly=sorted(lost)[len(lost) // 2] < 0.01),
    }


def hot_prefix() -> Judged:
    """More candidates for a prefix that keeps engines hot."""
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "shares": [rebalance.mean("on_time", adaptive=adaptive, rebalance=number) for number in (False, True)],
        }
        for adaptive, name in rebalance.NAMES.items()
    ]
    better = [after > before + 0.1 for before, after in (row["shares"] for row in rows)]
    verdict = judged(reproduced=all(better), partly=any(better))
    return {"share": HOT_SHARE, "engines": HOT_ENGINES, "rows": rows, "verdict": verdict}


def sick_engines() -> Judged:
    """Engines that answer /health with 200 but do not work."""
    times = [health.row(kind)["quarantined_after_s"] for kind in KINDS if kind not in health.SERVING]
    lost = sum(health.row(kind)["lost_without_first_token"] for kind in KINDS)
    slowest = max((time for time in times if time is not None), default=float("inf"))
    detected = None not in times
    return {
        "kinds": len(times),
        "engines": ENGINES,
        "slowest": slowest,
        "lost": lost,
        "verdict": judged(reproduced=detected and slowest <= _DETECTED_WITHIN_S and lost == 0, partly=detected),
    }


def healthy_engines() -> Judged:
    """Healthy engines under bursts."""
    wrongly = health.wrongly_quarantined()
    return {"hours": len(health.healthy()), "wrongly": wrongly, "verdict": judged(reproduced=wrongly == 0)}


def sick_engines_live() -> Judged:
    """Sick and healthy engines as real processes."""
    times = [row["out_after_s"] for row in automation_live.faults() if row["kind"] not in automation_live.SERVING]
    slowest = max(float("inf") if time is None else time for time in times)
    lost = load("sick_engines").find(kind="all")["lost_without_first_byte"]
    wrongly = len(automation_live.healthy()["wrongly"])
    reproduced = slowest <= _DETECTED_LIVE_WITHIN_S and not lost and not wrongly
    return {
        "kinds": len(times),
        "slowest": slowest,
        "lost": lost,
        "wrongly": wrongly,
        "verdict": judged(reproduced=reproduced, partly=not lost),
    }
