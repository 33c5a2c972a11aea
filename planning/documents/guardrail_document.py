"""The lines that a tried policy must not cross, as a canary or a control slice holds them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class GuardDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much worse than the other arm an arm may be, and how many requests it takes to say so."""

    late_more: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Late requests",
            description="Its share of requests that miss their time to first token may be greater by this much.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.01, 0.1]},
        ),
    ] = 0.03
    failed_more: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Failed requests",
            description="Its share of failed requests may be greater by this much.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.005, 0.05]},
        ),
    ] = 0.01
    ttft_ratio: Annotated[
        float,
        Meta(
            ge=1,
            le=100,
            title="Time to first token",
            description="Its mean time to first token (geometric) may be so many times the other's.",
            extra_json_schema={"x-unit": "×", "x-usual": [1.1, 2]},
        ),
    ] = 1.3
    tail_ratio: Annotated[
        float,
        Meta(
            ge=1,
            le=100,
            title="Slowest tenth",
            description="No more than a tenth of its requests may take this many times the other's 90th percentile.",
            extra_json_schema={"x-unit": "×", "x-usual": [1.2, 3]},
        ),
    ] = 1.5
    min_requests: Annotated[
        int,
        Meta(
            ge=10,
            le=100_000,
            title="Requests at least",
            description="With fewer requests in either arm nothing is said.",
            extra_json_schema={"x-unit": "requests", "x-usual": [30, 500]},
        ),
    ] = 40
    window_s: Annotated[
        float,
        Meta(
            ge=2,
            le=600,
            title="Looks back",
            description="Results of the last seconds are judged by themselves too, so that a regression that begins "
            "late is not diluted.",
            extra_json_schema={"x-unit": "s", "x-usual": [20, 60]},
        ),
    ] = 45.0
