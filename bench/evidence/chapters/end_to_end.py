"""Claims on the time to the last token."""

from __future__ import annotations

from bench.evidence.claims import Claim, change, judged
from bench.evidence.measure.end_to_end import LOADS
from bench.evidence.store import load

BASELINES = ("cache_affinity", "least_loaded", "min_ttft", "preble")
TRACES = {"conversation": "conversation", "toolagent_like": "tool & agent"}


def e2e_s(trace: str, qps: float, placement: str, figure: str) -> float:
    """Return a quantile of the time to the last token."""
    return load("end_to_end").number(f"e2e_{figure}_s", trace=trace, qps=qps, placement=placement)


def claims() -> list[Claim]:
    """Return the claims, one for each trace."""
    return [_follows(trace, name) for trace, name in TRACES.items()]


def _follows(trace: str, name: str) -> Claim:
    """Compare DualMap with the best baseline at the highest load, where the paper's gains are largest."""
    qps = LOADS[trace][-1]
    changes, words = [], []
    for figure in ("p50", "p90"):
        baseline = min(BASELINES, key=lambda each: e2e_s(trace, qps, each, figure))
        ours, theirs = e2e_s(trace, qps, "dual_map", figure), e2e_s(trace, qps, baseline, figure)
        changes.append(ours / theirs)
        words.append(f"{figure.upper()} {ours:.2f} s against {theirs:.2f} s ({baseline}): {change(ours, theirs)}")
    least = e2e_s(trace, qps, "dual_map", "p90") / e2e_s(trace, qps, "least_loaded", "p90")
    return Claim(
        source="DualMap §4.2, Fig. 4",
        claim="the time to the last token falls as that to the first does, at the median and at the 90th percentile",
        setting=f"co-located engines, {name}, {qps:g} requests/s",
        theirs="lower than all four baselines",
        ours=f"{'; '.join(words)}; P90 against least loaded {100 * (least - 1):+.0f} %",
        verdict=judged(reproduced=max(changes) < 0.97, partly=max(changes) < 1.0),
        why="decoding takes most of the time and is the same for all; what is left follows the time to first token",
    )
