"""DualMap's claims on a changing fleet (§3.4, A.3.3, Fig. 12), and on decode bottlenecks (A.8)."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from bench.evidence.chapters.automation import automation_live
from bench.evidence.chapters.automation.elasticity import (
    CHANGES,
    DIP_S,
    PLANNED,
    REACTIVE,
    course,
    dip,
    on_time,
    overload,
    plans,
    recovered_s,
    row,
)
from bench.evidence.chapters.capacity import admission
from bench.evidence.measure.automation.elasticity import FEW, FIXED_QPS, MANY, PHASES
from bench.evidence.measure.capacity import overload as measured
from bench.evidence.verdicts.verdict import Judged, judged

_ATTAINMENT = 0.9


def claims() -> dict[str, Any]:
    """Return all claims by name."""
    return {
        "up": scaling_up(),
        "down": scaling_down(),
        "remap": remap(),
        "caches": caches_survive(),
        "live": live(),
        "bottleneck": bottleneck(),
    }


def scaling_up() -> Judged:
    """Attainment after the few engines were overloaded."""
    start_s, end_s = overload()
    back_s, most = recovered_s(REACTIVE), max(plan["target"] - plan["engines"] for plan in plans(REACTIVE))
    return {
        "qps": PHASES[1][0],
        "added": most,
        "back_s": back_s,
        "after": on_time(REACTIVE, start_s + back_s, end_s),
        "verdict": judged(reproduced=most >= 4 and back_s < 240, partly=back_s < 600),
    }


def scaling_down() -> Judged:
    """Attainment while the fleet shrinks."""
    _, end_s = overload()
    calm = min(item[2] for item in course(REACTIVE, end_s, end_s + PHASES[2][1]) if item[1] >= 20)
    size = row(REACTIVE)["sizes"][-1][1]
    verdict = judged(reproduced=size == FEW and calm > _ATTAINMENT, partly=calm > 0.8)
    return {"qps": PHASES[2][0], "size": size, "least": calm, "verdict": verdict}


def remap() -> Judged:
    """Mappings that rings move at each change, against the ideal share."""
    remaps = [plan["remap"] for label in (REACTIVE, PLANNED) for plan in plans(label) if plan["remap"]]
    worst = max(abs(item["share"] / item["ideal"] - 1) for item in remaps)
    verdict = judged(reproduced=worst < 0.1, partly=worst < 0.25)
    return {"count": len(remaps), "few": FEW, "many": MANY, "worst": worst, "verdict": verdict}


def caches_survive() -> Judged:
    """Hits lost after a change with rings and with modulo hashing."""
    dips: list[dict[str, Any]] = [
        {"name": change, "rings": dip("rings", change), "modulo": dip("modulo", change)} for change in CHANGES
    ]
    return {
        "qps": FIXED_QPS,
        "dip_s": DIP_S,
        "dips": dips,
        "verdict": judged(
            reproduced=all(item["rings"] < 0.5 * item["modulo"] for item in dips),
            partly=any(item["rings"] < item["modulo"] for item in dips),
        ),
    }


def live() -> Judged:
    """Scaling of real processes."""
    scaled = automation_live.scaled()
    shares = [scaled["on_time_after_recovery"], scaled["on_time_while_shrinking"]]
    grown = scaled["most_engines"] > scaled["fewest_engines"]
    return {
        "few": scaled["fewest_engines"],
        "most": scaled["most_engines"],
        "shares": shares,
        "verdict": judged(reproduced=min(shares) >= _ATTAINMENT and grown, partly=max(shares) >= _ATTAINMENT),
    }


def bottleneck() -> Judged:
    """The decode-bottleneck correction on co-located engines, at each load.

    Partly reproduced if it gains half a point on time somewhere, and costs more than half a point nowhere. Never
    reproduced, because D is not the paper's (decision 96).
    """
    rows: list[dict[str, Any]] = []
    for qps, answers in measured.CONTENTION:
        before, after = (
            fmean(admission.seed_shares("bottleneck", on=on, qps=qps, answers=answers)) for on in (False, True)
        )
        rows.append({"qps": qps, "answers": answers, "before": before, "after": after})
    gains = [row["after"] - row["before"] for row in rows]
    harmless = min(gains) >= -0.005
    return {
        "after_s": measured.AFTER_S,
        "rows": rows,
        "seeds": len(measured.CONTENTION_SEEDS),
        "verdict": judged(reproduced=False, partly=harmless and max(gains) >= 0.005),
    }
