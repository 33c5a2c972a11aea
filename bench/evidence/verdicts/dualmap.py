"""DualMap's claims: goodput and latency (§4.2), parts (§4.3), balance (A.3), larger fleets (A.4), candidates (A.9)."""

from __future__ import annotations

from typing import Any

from bench.evidence.chapters.capacity import scale
from bench.evidence.chapters.routing import keys, pending
from bench.evidence.chapters.routing.ablations import PAST, SHOWN, at, deviation, goodput
from bench.evidence.chapters.routing.goodput import BASELINES, TRACES, best
from bench.evidence.chapters.setting import infinite_hit_rate
from bench.evidence.measure.capacity.scale import SIZES
from bench.evidence.measure.routing import end_to_end
from bench.evidence.measure.routing.ablations import CHOICE_RULES, CHOICES, FULL, PAPER, WITHOUT_REBALANCE, choice_name
from bench.evidence.measure.routing.choices import SIZES as BIN_SIZES
from bench.evidence.measure.routing.load_curves import LOADS
from bench.evidence.store import Row, load
from bench.evidence.verdicts.verdict import BY_CONSTRUCTION, QUARTER, Judged, judged, reaches

_TRACE = "conversation"
_AT, _PAST = SHOWN[_TRACE], PAST[_TRACE]
_PAPER_GAIN = {"conversation": 0.143, "toolagent_like": 0.167}
"""The minimum gain in DualMap's Fig. 3 over the best baseline."""
_ENOUGH_CAPACITY = {"conversation": 0.406, "toolagent_like": (1 - QUARTER) * 1.25}
"""The paper's minimum gain. On tool & agent, three quarters of the abstract's, which is up to 2.25 times."""


def claims() -> dict[str, Any]:
    """Return all claims by name."""
    return {
        "goodput": {trace: goodput_gain(trace) for trace in TRACES},
        "latency": {figure: latency(f"ttft_{figure}_s") for figure in ("p50", "p90")},
        "hit_rates": hit_rates(),
        "preble": preble(),
        "skew": skew(),
        "pending": pending_work(),
        "keys": key_lengths(),
        "end_to_end": {trace: last_token(trace) for trace in TRACES},
        "capacity": {trace: capacity(trace) for trace in TRACES},
        "affinity": cache_locality_queues(),
        "least_loaded": least_loaded_misses(),
        "switch": switch(),
        "rebalance": rebalance(),
        "two_choices": two_choices(),
        "more_candidates": more_candidates(),
        "growth": growth(),
        "larger": larger(),
    }


def point(trace: str, qps: float, placement: str, order: str = "fifo") -> Row:
    """Return the run of a rule at a load."""
    return load("load_curves").find(trace=trace, qps=qps, placement=placement, order=order)


def hits(trace: str, qps: float, placement: str) -> float:
    """Return a rule's hit rate as a share of the infinite cache's."""
    rate: float = point(trace, qps, placement)["token_hit_rate"]
    return rate / infinite_hit_rate(trace)


def goodput_gain(trace: str) -> Judged:
    """Goodput against the best baseline."""
    name, baseline = best(load("goodput"), trace, BASELINES, "goodput_qps")
    ours = load("goodput").number("goodput_qps", trace=trace, placement="dual_map", order="fifo")
    gain = ours / baseline - 1
    verdict = judged(reproduced=gain >= _PAPER_GAIN[trace] - 0.02, partly=gain > 0.02)
    return {"ours": ours, "baseline": baseline, "name": name, "gain": gain, "verdict": verdict}


def latency(figure: str) -> Judged:
    """A quantile of TTFT against the best baseline at high load."""
    times = {name: point(_TRACE, 10.0, name)[figure] for name in ("dual_map", *BASELINES)}
    name = min(BASELINES, key=times.__getitem__)
    ours, theirs = times["dual_map"], times[name]
    far = 0.45 if figure == "ttft_p50_s" else 0.3
    return {
        "ours": ours,
        "baseline": theirs,
        "name": name,
        "gain": ours / theirs - 1,
        "over_least_loaded": ours / times["least_loaded"] - 1,
        "verdict": judged(reproduced=ours < far * theirs, partly=ours < theirs),
    }


def hit_rates() -> Judged:
    """Hits as a share of the bound, at loads that DualMap sustains."""
    rates = [hits("conversation", 10.0, "dual_map"), hits("toolagent_like", 18.0, "dual_map")]
    met = [abs(ours - paper) < 0.08 for ours, paper in zip(rates, (0.625, 0.964), strict=True)]
    return {
        "ours": rates,
        "past": hits("conversation", 12.0, "dual_map"),
        "past_on_time": point("conversation", 12.0, "dual_map")["slo_share"],
        "verdict": judged(reproduced=all(met), partly=any(met)),
    }


def preble() -> Judged:
    """Preble's hits against least loaded's."""
    ours, least = (hits("conversation", 10.0, name) for name in ("preble", "least_loaded"))
    verdict = judged(reproduced=abs(ours - least) < 0.1, partly=ours < 2 * least)
    return {"ours": ours, "least_loaded": least, "verdict": verdict}


def skew() -> Judged:
    """Fixed affinity under skewed prefixes, from a low load up."""
    trace, high = "toolagent_like", 18
    shares = [
        {"qps": qps, "share": point(trace, float(qps), "cache_affinity")["slo_share"]}
        for qps in LOADS[trace]
        if qps <= high
    ]
    low = shares[0]
    others = max(point(trace, low["qps"], item)["slo_share"] for item in BASELINES if item != "cache_affinity")
    verdict = judged(reproduced=low["share"] < 0.8 * others, partly=shares[-1]["share"] < 0.7)
    return {"low": low["qps"], "high": high, "shares": shares, "others": others, "verdict": verdict}


def pending_work() -> Judged:
    """Evenness and in-flight work under least loaded."""
    trace = "toolagent_like"
    cvs = {qps: point(trace, float(qps), "least_loaded")["mean_cv"] for qps in LOADS[trace] if 12 <= qps <= 18}
    more = pending.more_under_least_loaded()
    verdict = judged(reproduced=max(cvs.values()) < 0.3 and more > 1.3, partly=min(cvs.values()) < 0.3 and more > 1.0)
    return {"cvs": cvs, "least": min(cvs), "most": max(cvs), "more": more, "verdict": verdict}


def key_lengths() -> Judged:
    """Shares of requests by the length of their key."""
    return {
        "engines": keys.ENGINES,
        "paper": list(keys.PAPER.values()),
        "ours": list(keys.shares().values()),
        "verdict": BY_CONSTRUCTION,
    }


def last_token(trace: str) -> Judged:
    """Time to last token against the best baseline at the highest load, where the paper's gains are largest."""
    qps = end_to_end.LOADS[trace][-1]
    result, quantiles = load("end_to_end"), dict[str, Any]()
    for figure in ("p50", "p90"):
        rows = {
            name: result.number(f"e2e_{figure}_s", trace=trace, qps=qps, placement=name)
            for name in ("dual_map", *BASELINES)
        }
        name = min(BASELINES, key=rows.__getitem__)
        quantiles[figure] = {
            "ours": rows["dual_map"],
            "baseline": rows[name],
            "name": name,
            "gain": rows["dual_map"] / rows[name] - 1,
            "over_least_loaded": rows["dual_map"] / rows["least_loaded"] - 1,
        }
    most = 1 + max(quantile["gain"] for quantile in quantiles.values())
    return quantiles | {"qps": qps, "verdict": judged(reproduced=most < 0.97, partly=most < 1.0)}


def capacity(trace: str) -> Judged:
    """Requests on time against the best baseline at the same load."""
    gains = []
    for qps in LOADS[trace]:
        baseline = max(point(trace, float(qps), item)["slo_share"] for item in BASELINES)
        if baseline > 0.01:
            gains.append((point(trace, float(qps), "dual_map")["slo_share"] / baseline - 1, qps))
    gain, qps = max(gains)
    return {
        "loads": [LOADS[trace][0], LOADS[trace][-1]],
        "gain": gain,
        "qps": qps,
        "any": gain > 0.005,
        "verdict": judged(reproduced=gain >= _ENOUGH_CAPACITY[trace], partly=gain > 0.05),
    }


def cache_locality_queues() -> Judged:
    """TTFT of a rule that always takes the better match of two."""
    p50, p90 = ({label: at(_TRACE, label, _AT, f"ttft_{name}_s") for label in PAPER} for name in ("p50", "p90"))
    return {
        "qps": _AT,
        "affinity": [p50["affinity"], p90["affinity"]],
        "dual_map": [p50[FULL], p90[FULL]],
        "verdict": judged(
            reproduced=max(p50, key=p50.__getitem__) == max(p90, key=p90.__getitem__) == "affinity",
            partly=max(p90, key=p90.__getitem__) == "affinity",
        ),
    }


def least_loaded_misses() -> Judged:
    """Hits and evenness of the choices between two candidates."""
    hit_rate = {label: at(_TRACE, label, _AT, "token_hit_rate") for label in PAPER}
    cv = {label: at(_TRACE, label, _AT, "mean_cv") for label in PAPER}
    shown = ("least_loaded", "min_ttft", WITHOUT_REBALANCE, "affinity")
    rising = [hit_rate[item] for item in shown]
    whole = rising == sorted(rising) and max(cv, key=cv.__getitem__) == "affinity"
    return {
        "qps": _AT,
        "hits": rising,
        "cv": [cv[item] for item in shown],
        "dual_map": {"hits": hit_rate[FULL], "cv": cv[FULL]},
        "verdict": judged(
            reproduced=whole and min(cv, key=cv.__getitem__) == "least_loaded",
            partly=min(hit_rate, key=hit_rate.__getitem__) == min(cv, key=cv.__getitem__) == "least_loaded",
        ),
    }


def switch() -> Judged:
    """Switching by the SLO against the lowest TTFT of two."""
    changes = [
        [
            at(_TRACE, WITHOUT_REBALANCE, qps, figure) / at(_TRACE, "min_ttft", qps, figure) - 1
            for figure in ("ttft_p50_s", "ttft_p90_s")
        ]
        for qps in (_AT, _PAST)
    ]
    p90s = [change[1] for change in changes]
    verdict = judged(reproduced=reaches(1 + max(p90s), 1 - 0.185), partly=min(p90s) < -0.02)
    return {"loads": [_AT, _PAST], "changes": changes, "verdict": verdict}


def rebalance() -> Judged:
    """The effect of rebalancing on the tail."""
    loads = (_AT, _PAST)
    changes = [
        at(_TRACE, FULL, qps, "ttft_p90_s") / at(_TRACE, WITHOUT_REBALANCE, qps, "ttft_p90_s") - 1 for qps in loads
    ]
    return {
        "changes": changes,
        "moved": [at(_TRACE, FULL, qps, "migrations") for qps in loads],
        "verdict": judged(reproduced=reaches(1 + min(changes), 1 - 0.113), partly=min(changes) < -0.02),
    }


def two_choices() -> Judged:
    """The largest deviation of balls in bins with one, two and three candidates."""
    first, second, third = ([deviation("100 nodes", d, size) for size in BIN_SIZES] for d in (1, 2, 3))
    steep = max(b / a for a, b in zip(first, second, strict=True)) < 0.1
    flat = max(b - c for b, c in zip(second, third, strict=True)) < 0.01 * max(first)
    return {
        "first": first,
        "second": max(second),
        "third": max(third),
        "one_node": max(deviation("1 node", 2, size) for size in BIN_SIZES),
        "verdict": judged(reproduced=steep and flat, partly=steep),
    }


def more_candidates() -> Judged:
    """Goodput over the number of candidates."""
    goodputs = {
        selection: [{d: goodput(trace, choice_name(selection, d)) for d in CHOICES} for trace in TRACES]
        for selection in CHOICE_RULES
    }
    enough = [row[2] >= max(row.values()) - 0.2 for rows in goodputs.values() for row in rows]
    return {
        "choices": CHOICES,
        "found": {selection: [list(row.values()) for row in rows] for selection, rows in goodputs.items()},
        "verdict": judged(reproduced=all(enough), partly=any(enough)),
    }


def growth() -> Judged:
    """Goodput over the size of the fleet."""
    goodputs = [scale.goodput(size, "dual_map") for size in SIZES]
    times, ideal = goodputs[-1] / goodputs[0], SIZES[-1] / SIZES[0]
    verdict = judged(reproduced=times > 0.9 * ideal, partly=times > 0.7 * ideal)
    return {"sizes": SIZES, "found": goodputs, "times": times, "verdict": verdict}


def larger() -> Judged:
    """Goodput against the four baselines at every size."""
    rows: list[dict[str, Any]] = [
        {"ours": scale.goodput(size, "dual_map"), "best": _best_baseline(size)} for size in SIZES
    ]
    ahead = [row for row in rows if row["ours"] > row["best"][0] + 0.2]
    last = rows[-1]
    return {
        "sizes": SIZES,
        "rows": rows,
        "on_time": [scale.on_time(32, 88.0, name) for name in ("dual_map", "preble")],
        "beaten": [item for item in BASELINES if last["ours"] > scale.goodput(SIZES[-1], item)],
        "change": last["ours"] / last["best"][0] - 1,
        "verdict": judged(reproduced=len(ahead) == len(SIZES), partly=bool(ahead)),
    }


def _best_baseline(size: int) -> tuple[float, str]:
    return max((scale.goodput(size, item), item) for item in BASELINES)
