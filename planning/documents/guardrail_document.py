"""The lines that a tried policy must not cross, as a canary or a holdback holds them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class GuardDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much worse than the other arm an arm may be, and how many requests a verdict needs."""

    late_more: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Late requests",
            description="Maximum increase of the share of requests that miss their TTFT objective.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.01, 0.1]},
        ),
    ] = 0.03
    failed_more: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Failed requests",
            description="Maximum increase of the share of failed requests.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.005, 0.05]},
        ),
    ] = 0.01
    ttft_ratio: Annotated[
        float,
        Meta(
            ge=1,
            le=100,
            title="Time to first token",
            description="Maximum ratio of geometric mean TTFTs, candidate to baseline.",
            extra_json_schema={"x-unit": "×", "x-usual": [1.1, 2]},
        ),
    ] = 1.3
    tail_ratio: Annotated[
        float,
        Meta(
            ge=1,
            le=100,
            title="Slowest 10 %",
            description="At most 10 % of the candidate's requests may exceed this many times the baseline's p90.",
            extra_json_schema={"x-unit": "×", "x-usual": [1.2, 3]},
        ),
    ] = 1.5
    min_requests: Annotated[
        int,
        Meta(
            ge=10,
            le=100_000,
            title="Min requests",
            description="Requests per version needed for a verdict.",
            extra_json_schema={"x-unit": "requests", "x-usual": [30, 500]},
        ),
    ] = 40
    window_s: Annotated[
        float,
        Meta(
            ge=2,
            le=600,
            title="Recent window",
            description="Also judges the most recent results separately, so that a late regression is not diluted.",
            extra_json_schema={"x-unit": "s", "x-usual": [20, 60]},
        ),
    ] = 45.0
