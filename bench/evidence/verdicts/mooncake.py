"""Mooncake's claims: transfers (§4.2, §7.4.2), early rejection (Table 4), prefill and decode engines (§5.1, §7.5)."""

from __future__ import annotations

from typing import Any

from bench.evidence.chapters.automation import pd_ratio
from bench.evidence.chapters.capacity import admission
from bench.evidence.chapters.capacity.transfer import at_bandwidth, change, mean_ttft
from bench.evidence.measure.automation.pd_ratio import ENGINES, FIXED, SWEEP_ENGINES, SWEPT
from bench.evidence.measure.capacity import admission as measured
from bench.evidence.measure.capacity.transfer import BANDWIDTH_LOADS, LOADS, RULES
from bench.evidence.verdicts.verdict import BY_CONSTRUCTION, QUARTER, Judged, judged

_TRACE = "conversation"
_ENOUGH_CHANGE = {"conversation": (1 - QUARTER) * 0.14, "toolagent_like": 0.08}
"""Three quarters of the paper's reduction of mean TTFT. On tool & agent it has no figure, so the limit is ours."""
_TURNS = 3
"""Changes of direction that merely follow the day."""


def claims() -> dict[str, Any]:
    """Return all claims by name."""
    return {
        "ranking": ranking(),
        "transfers": {trace: transfers(trace) for trace in LOADS},
        "bandwidth": bandwidth(),
        "rejections": rejections(),
        "fluctuation": fluctuation(),
        "controller": controller(),
        "steps": steps(),
        "sweep": sweep(),
        "peak": peak(),
    }


def ranking() -> Judged:
    """Mean TTFT of three rules in the order of the paper."""
    loads = LOADS[_TRACE]
    held = [
        qps
        for qps in loads
        if mean_ttft(_TRACE, "random", qps)
        > mean_ttft(_TRACE, "least_loaded", qps)
        > mean_ttft(_TRACE, "min_ttft", qps)
    ]
    return {
        "loads": [loads[0], loads[-1]],
        "held": len(held),
        "count": len(loads),
        "at_10": [mean_ttft(_TRACE, item, 10.0) for item in RULES],
        "verdict": judged(reproduced=len(held) == len(loads), partly=len(held) > len(loads) // 2),
    }


def transfers(trace: str) -> Judged:
    """Mean TTFT with transfers against local caches alone."""
    changes = [change(trace, qps) for qps in LOADS[trace]]
    usual = change(trace, BANDWIDTH_LOADS[trace])
    verdict = judged(reproduced=max(changes) < 0 and usual < -_ENOUGH_CHANGE[trace], partly=usual < 0)
    return {"loads": LOADS[trace], "changes": changes, "verdict": verdict}


def bandwidth() -> Judged:
    """Mean TTFT over the bandwidth of a sender."""
    slow, usual, fast = (at_bandwidth(_TRACE, gbps) for gbps in (24.0, 100.0, 400.0))
    return {
        "qps": BANDWIDTH_LOADS[_TRACE],
        "found": [slow, usual, fast],
        "changes": [slow / usual - 1, fast / usual - 1],
        "verdict": judged(reproduced=slow > 1.5 * usual > 1.5 * fast, partly=slow > usual > fast),
    }


def rejections() -> Judged:
    """Rejections relative to the baseline's: early, and predicted with the paper's uniform t_d."""
    early, predicted = (admission.over_baseline(mode, "rejected") for mode in (measured.EARLY, measured.UNIFORM))
    fewer, further = [item < 1.0 for item in early], admission.fewer_than_early(measured.UNIFORM)
    exceptions = [
        {"setting": admission.SETTING_NAMES[name], "slo_s": slo_s}
        for (name, slo_s), less, more in zip(admission.SETTINGS, fewer, further, strict=True)
        if not (less and more)
    ]
    return {
        "count": len(early),
        "paper": [admission.PAPER["early"], admission.PAPER["predictive"]],
        "early": early,
        "fewer": sum(fewer),
        "predicted": predicted,
        "further": sum(further),
        "exceptions": exceptions,
        "verdict": judged(reproduced=all(fewer) and all(further), partly=any(fewer) and any(further)),
    }


def fluctuation() -> Judged:
    """Opposing swings of prefill and decode, and their damping by prediction."""
    early, predicted = (admission.values(mode, "correlation") for mode in (measured.EARLY, measured.UNIFORM))
    against = sum(item < -0.4 for item in early)
    closer = sum(abs(now) < abs(before) for before, now in zip(early, predicted, strict=True))
    calmer, count = admission.calmer(measured.UNIFORM, "prefill_load_sd"), len(early)
    return {
        "count": count,
        "against": against,
        "closer": closer,
        "calmer": calmer,
        "verdict": judged(reproduced=min(against, closer, calmer) == count, partly=against > 0 and closer > count / 2),
    }


def controller() -> Judged:
    """A day under the controller against fixed ratios."""
    best = max(FIXED, key=lambda item: pd_ratio.fixed(item)["capacity"])
    fixed, shares = pd_ratio.fixed(best)["capacity"], [item["capacity"] for item in pd_ratio.controlled()]
    return {
        "engines": ENGINES,
        "shares": shares,
        "fixed": fixed,
        "ratios": len(FIXED),
        "best": f"{best} : {ENGINES - best}",
        "verdict": judged(reproduced=min(shares) > 0.9, partly=min(shares) > fixed + 0.1),
    }


def steps() -> Judged:
    """Changes of the controller's direction over a day."""
    turns = max(item["turns"] for item in pd_ratio.controlled())
    return {"turns": turns, "needed": _TURNS, "verdict": judged(reproduced=turns <= _TURNS, partly=turns <= 2 * _TURNS)}


def sweep() -> Judged:
    """TTFT and TBT from the fewest prefill engines to the most."""
    least, most = pd_ratio.swept(SWEPT[0]), pd_ratio.swept(SWEPT[-1])
    lower, higher = least["ttft_mean_s"] > most["ttft_mean_s"], least["tpot_mean_s"] < most["tpot_mean_s"]
    return {
        "engines": SWEEP_ENGINES,
        "ttft": [least["ttft_mean_s"], most["ttft_mean_s"]],
        "tpot_ms": [1000 * least["tpot_mean_s"], 1000 * most["tpot_mean_s"]],
        "verdict": judged(reproduced=lower and higher, partly=lower or higher),
    }


def peak() -> Judged:
    """The ratio at which capacity peaks."""
    capacities = {item: pd_ratio.swept(item)["capacity"] for item in SWEPT}
    best = max(capacities.values())
    return {
        "best": best,
        "at": [f"{item} : {SWEEP_ENGINES - item}" for item in SWEPT if capacities[item] == best],
        "ends": [capacities[SWEPT[0]], capacities[SWEPT[-1]]],
        "verdict": BY_CONSTRUCTION,
    }
