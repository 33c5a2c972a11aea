"""The results of one simulated run of several regions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from simulator.percentile import percentile
from simulator.regions.region_request import RegionRequest


class RegionReport(msgspec.Struct, frozen=True):
    """The results of a run. Only requests sent after the warm-up count; a request without a first token counts with
    its age.
    """

    policy: str
    workload: str
    seed: int
    tokens_per_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    e2e_p50_s: float
    hit_rate: float
    crossed_share: float
    unanswered: int


def report_of(
    policy: str, workload: str, seed: int, tokens_per_s: float, requests: Sequence[RegionRequest], end_s: float
) -> RegionReport:
    """Return the report on the requests of a run that ended at `end_s`."""
    admitted = [request for request in requests if request.admitted_s is not None]
    prompt_tokens = sum(request.prompt.tokens for request in admitted)
    firsts = [min(request.first_token_s or end_s, end_s) - request.sent_s for request in requests]
    whole = [request.ended_s - request.sent_s for request in requests if request.ended_s is not None]
    return RegionReport(
        policy=policy,
        workload=workload,
        seed=seed,
        tokens_per_s=round(tokens_per_s, 2),
        ttft_p50_s=_percentile(firsts, 50),
        ttft_p90_s=_percentile(firsts, 90),
        e2e_p50_s=_percentile(whole, 50),
        hit_rate=_share(sum(request.cached_tokens for request in admitted), prompt_tokens),
        crossed_share=_share(sum(request.served_region != request.region for request in admitted), len(admitted)),
        unanswered=sum(request.first_token_s is None or request.first_token_s > end_s for request in requests),
    )


def _percentile(values: Sequence[float], percent: float) -> float:
    return round(percentile(sorted(values), percent) or 0.0, 4)


def _share(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0
