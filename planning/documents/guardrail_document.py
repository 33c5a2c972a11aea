"""Thresholds that a candidate policy must not cross, in a canary or a holdback."""

from __future__ import annotations

from typing import Annotated

import msgspec

from routing.policy.setting import about, number


class GuardrailDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much worse one arm can be than the other, and how many requests a verdict needs."""

    late_more: Annotated[
        float,
        about("Late requests", "Maximum increase of the share of requests that miss their TTFT objective."),
        number("share", ge=0, le=1, usual=(0.01, 0.1)),
    ] = 0.03
    failed_more: Annotated[
        float,
        about("Failed requests", "Maximum increase of the share of failed requests."),
        number("share", ge=0, le=1, usual=(0.005, 0.05)),
    ] = 0.01
    ttft_ratio: Annotated[
        float,
        about("Time to first token", "Maximum ratio of geometric mean TTFTs, candidate to baseline."),
        number("×", ge=1, le=100, usual=(1.1, 2)),
    ] = 1.3
    tail_ratio: Annotated[
        float,
        about(
            "Slowest 10 %", "At most 10 % of the candidate's requests may exceed this many times the baseline's p90."
        ),
        number("×", ge=1, le=100, usual=(1.2, 3)),
    ] = 1.5
    min_requests: Annotated[
        int,
        about("Min requests", "Requests per version needed for a verdict."),
        number("requests", ge=10, le=100_000, usual=(30, 500)),
    ] = 40
    window_s: Annotated[
        float,
        about(
            "Recent window", "Also judges the most recent results separately, so that a late regression is not diluted."
        ),
        number("s", ge=2, le=600, usual=(20, 60)),
    ] = 45.0
