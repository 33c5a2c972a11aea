"""The settings of scaling, as an automation document holds them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from planning.documents.automation_mode import ADVISE, Mode


class ScalingDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many engines a pool may have, and when it gets more or fewer (DualMap §3.4, A.3.3)."""

    mode: Annotated[
        Mode,
        Meta(
            title="Scaling",
            description="off: nothing. advise: plans are shown. act: engines are started and drained by the pool's "
            "actuator.",
        ),
    ] = ADVISE
    min_engines: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Engines at least",
            description="The pool is never drained below this.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 16]},
        ),
    ] = 1
    max_engines: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Engines at most",
            description="The pool never grows above this.",
            extra_json_schema={"x-unit": "engines", "x-usual": [2, 64]},
        ),
    ] = 16
    attainment: Annotated[
        float,
        Meta(
            gt=0,
            lt=1,
            title="Attainment",
            description="Share of requests that should meet their TTFT objective.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.9, 0.99]},
        ),
    ] = 0.9
    window_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="Judged over",
            description="The last seconds over which attainment, queue and work are judged.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 120]},
        ),
    ] = 30.0
    min_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            title="Judged from",
            description="Requests within the window without which attainment says nothing.",
            extra_json_schema={"x-unit": "requests", "x-usual": [10, 200]},
        ),
    ] = 20
    utilisation: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            title="Utilisation",
            description="Share of the engines' time that the expected work should take; the size that is aimed at.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.5, 0.75]},
        ),
    ] = 0.6
    hysteresis: Annotated[
        float,
        Meta(
            ge=0,
            le=0.5,
            title="Hysteresis",
            description="The pool shrinks only where the expected work stays this share below the utilisation that "
            "is aimed at, after the shrinking.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.3]},
        ),
    ] = 0.2
    max_up: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="Added at once",
            description="Engines that one plan may add.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 8]},
        ),
    ] = 4
    max_down: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="Drained at once",
            description="Engines that one plan may drain.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 2]},
        ),
    ] = 1
    up_cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Pause after adding",
            description="Time after an addition, beyond the warm-up, before the next one.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 120]},
        ),
    ] = 30.0
    down_cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Pause before draining",
            description="Time after any change, and of calm, before an engine is drained.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 900]},
        ),
    ] = 120.0
    warm_up_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Warm-up",
            description="Time from the order to start an engine until it serves; the forecast looks as far ahead.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 300]},
        ),
    ] = 30.0
    ramp_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Warm-up ramp",
            description="Time over which a new engine gets its full share of the load; 0: at once.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 60]},
        ),
    ] = 0.0
    forecast: Annotated[
        bool,
        Meta(
            title="Forecast",
            description="Adds before the load comes: by the trend of the last minutes and the same time in past "
            "seasons, where there is history.",
        ),
    ] = True
    season_s: Annotated[
        float,
        Meta(
            ge=60,
            le=604_800,
            title="Season",
            description="Period after which load repeats.",
            extra_json_schema={"x-unit": "s", "x-usual": [86400, 604800]},
        ),
    ] = 86_400.0
    budget_engine_h: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            title="Engine hours a day",
            description="Engine hours within the last 24 hours beyond which nothing is added; 0: no bound.",
            extra_json_schema={"x-unit": "h", "x-usual": [24, 2400]},
        ),
    ] = 0.0
    engine_h_cost: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            title="Price of an engine hour",
            description="In the currency of the daily cost below.",
            extra_json_schema={"x-unit": "per h", "x-usual": [0.5, 50]},
        ),
    ] = 0.0
    budget_cost: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            title="Cost a day",
            description="Cost within the last 24 hours beyond which nothing is added; 0: no bound.",
            extra_json_schema={"x-unit": "per day", "x-usual": [10, 10000]},
        ),
    ] = 0.0
