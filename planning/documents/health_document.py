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
            description="off: the gateway's breaker alone. advise: verdicts are shown. act: quarantined engines get no "
            "work and come back slowly.",
        ),
    ] = ACT
    stall_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="No progress for",
            description="An engine with requests whose counters stand this long, beyond what its longest prefill may "
            "take, is quarantined.",
            extra_json_schema={"x-unit": "s", "x-usual": [5, 30]},
        ),
    ] = 10.0
    bottleneck_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="Decode bottleneck after",
            description="An engine that decodes on but ends no prefill for this long, though prefills stand there, is "
            "a suspect.",
            extra_json_schema={"x-unit": "s", "x-usual": [2, 10]},
        ),
    ] = 3.0
    stale_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="Reports are good for",
            description="Older readings of an engine are not judged; it keeps its last state.",
            extra_json_schema={"x-unit": "s", "x-usual": [2, 15]},
        ),
    ] = 5.0
    silent_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            title="Silent for",
            description="An engine whose probes get no answer for this long is quarantined.",
            extra_json_schema={"x-unit": "s", "x-usual": [1, 10]},
        ),
    ] = 2.0
    failures: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="Failures in a row",
            description="So many failed requests in a row quarantine an engine.",
            extra_json_schema={"x-unit": "requests", "x-usual": [3, 10]},
        ),
    ] = 5
    slow_factor: Annotated[
        float,
        Meta(
            gt=1,
            le=100,
            title="Crawling at",
            description="An engine is crawling when its prefills or its tokens take this many times what its peers' "
            "take, and as many times what its cost model says.",
            extra_json_schema={"x-unit": "×", "x-usual": [2, 5]},
        ),
    ] = 3.0
    slow_samples: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Judged from",
            description="Requests within the window that a judgement of speed needs.",
            extra_json_schema={"x-unit": "requests", "x-usual": [3, 50]},
        ),
    ] = 3
    slow_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="Crawling for",
            description="A suspect that crawls is quarantined after this time; the slower it is the sooner, but not "
            "before a third of it.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 60]},
        ),
    ] = 15.0
    flaps: Annotated[
        int,
        Meta(
            ge=2,
            le=16,
            title="Flapping at",
            description="So many losses or restarts within the flapping window quarantine an engine.",
            extra_json_schema={"x-unit": "times", "x-usual": [3, 5]},
        ),
    ] = 3
    flap_window_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            title="Flapping window",
            description="Time over which losses and restarts are counted.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 600]},
        ),
    ] = 180.0
    ejection_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="Quarantine",
            description="The first quarantine lasts this long, the n-th in a row n times as long.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 60]},
        ),
    ] = 30.0
    ejection_max_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            title="Longest quarantine",
            description="No quarantine lasts longer; an engine that is well for as long begins anew at the first.",
            extra_json_schema={"x-unit": "s", "x-usual": [120, 900]},
        ),
    ] = 300.0
    outlier_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Outliers at most",
            description="Share of a pool that may be quarantined for being worse than the rest; one engine always may.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.2]},
        ),
    ] = 0.1
    panic_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Panic below",
            description="With a smaller share of healthy engines nobody is quarantined for being worse than the rest.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.3, 0.5]},
        ),
    ] = 0.5
    ramp_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Slow return",
            description="Time over which an engine that comes back gets its full share of the load; 0: at once.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 120]},
        ),
    ] = 30.0
    ramp_from: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            title="Return begins at",
            description="Share of the load with which a return begins.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.3]},
        ),
    ] = 0.1
