"""The settings of engine health, as an automation document holds them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from planning.documents.automation_mode import ACT, Mode


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an engine is held to be sick, how long it is kept out, and how slowly it comes back."""

    mode: Annotated[
        Mode,
        Meta(
            title="Engine health",
            description="off: circuit breaker only. advise: show verdicts. act: quarantined engines get no work and "
            "return with slow start.",
        ),
    ] = ACT
    stall_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="Stall timeout",
            description="Quarantines an engine with requests whose counters do not change for this long beyond its "
            "longest prefill.",
            extra_json_schema={"x-unit": "s", "x-usual": [5, 30]},
        ),
    ] = 10.0
    bottleneck_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="Decode bottleneck timeout",
            description="An engine that keeps decoding but completes no pending prefill for this long is suspect.",
            extra_json_schema={"x-unit": "s", "x-usual": [2, 10]},
        ),
    ] = 3.0
    stale_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="Report TTL",
            description="Ignores older engine reports; the engine keeps its last state.",
            extra_json_schema={"x-unit": "s", "x-usual": [2, 15]},
        ),
    ] = 5.0
    silent_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="Probe timeout",
            description="Quarantines an engine whose probes get no answer for this long.",
            extra_json_schema={"x-unit": "s", "x-usual": [1, 10]},
        ),
    ] = 2.0
    failures: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="Consecutive failures",
            description="Failed requests in a row that quarantine an engine.",
            extra_json_schema={"x-unit": "requests", "x-usual": [3, 10]},
        ),
    ] = 5
    slow_factor: Annotated[
        float,
        Meta(
            gt=1,
            le=100,
            title="Slow threshold",
            description="An engine is slow if its prefills or tokens take this many times as long as its peers' and "
            "as its cost model predicts.",
            extra_json_schema={"x-unit": "×", "x-usual": [2, 5]},
        ),
    ] = 3.0
    slow_samples: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Min samples",
            description="Requests in the window needed to judge speed.",
            extra_json_schema={"x-unit": "requests", "x-usual": [3, 50]},
        ),
    ] = 3
    slow_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="Slow timeout",
            description="Quarantines a slow engine after this time. Slower engines are quarantined sooner, but not "
            "before a third of it.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 60]},
        ),
    ] = 15.0
    flaps: Annotated[
        int,
        Meta(
            ge=2,
            le=16,
            title="Flapping threshold",
            description="Losses or restarts within the flapping window that quarantine an engine.",
            extra_json_schema={"x-unit": "times", "x-usual": [3, 5]},
        ),
    ] = 3
    flap_window_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            title="Flapping window",
            description="Window for counting losses and restarts.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 600]},
        ),
    ] = 180.0
    ejection_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="Quarantine",
            description="Duration of the first quarantine; the n-th in a row lasts n times as long.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 60]},
        ),
    ] = 30.0
    ejection_max_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            title="Max quarantine",
            description=(
                "Maximum duration of a quarantine. An engine that stays healthy for as long starts over at the first."
            ),
            extra_json_schema={"x-unit": "s", "x-usual": [120, 900]},
        ),
    ] = 300.0
    outlier_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Max ejection",
            description="Maximum share of a pool that may be quarantined as outliers; one engine always may.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.2]},
        ),
    ] = 0.1
    panic_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Panic threshold",
            description="If the share of healthy engines is smaller, no engine is quarantined as an outlier.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.3, 0.5]},
        ),
    ] = 0.5
    ramp_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Slow start",
            description="Time until a returning engine gets its full share of load; 0: at once.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 120]},
        ),
    ] = 30.0
    ramp_from: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            title="Slow start from",
            description="Initial share of load.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.3]},
        ),
    ] = 0.1
