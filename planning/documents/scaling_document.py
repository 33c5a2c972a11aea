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
            description="off: nothing. advise: show plans. act: the pool's actuator starts and drains engines.",
        ),
    ] = ADVISE
    min_engines: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Min engines",
            description="The pool never drains below this.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 16]},
        ),
    ] = 1
    max_engines: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Max engines",
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
            description="Target share of requests that meet their TTFT objective.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.9, 0.99]},
        ),
    ] = 0.9
    window_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="Window",
            description="Window for attainment, queue and load.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 120]},
        ),
    ] = 30.0
    min_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            title="Min samples",
            description="Requests in the window needed to judge attainment.",
            extra_json_schema={"x-unit": "requests", "x-usual": [10, 200]},
        ),
    ] = 20
    utilisation: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            title="Target utilization",
            description="Target share of engine time for the expected load.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.5, 0.75]},
        ),
    ] = 0.6
    hysteresis: Annotated[
        float,
        Meta(
            ge=0,
            le=0.5,
            title="Hysteresis",
            description="Shrinks only if the expected load stays this far below the target utilization afterwards.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.3]},
        ),
    ] = 0.2
    max_up: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="Max added at once",
            description="Maximum engines added per plan.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 8]},
        ),
    ] = 4
    max_down: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            title="Max drained at once",
            description="Maximum engines drained per plan.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 2]},
        ),
    ] = 1
    up_cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Scale-up cooldown",
            description="Time between additions, after the warm-up.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 120]},
        ),
    ] = 30.0
    down_cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Scale-down cooldown",
            description="Time after any change, at low load, before an engine is drained.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 900]},
        ),
    ] = 120.0
    warm_up_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Warm-up",
            description="Time from starting an engine until it serves. The forecast looks this far ahead.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 300]},
        ),
    ] = 30.0
    ramp_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Slow start",
            description="Time until a new engine gets its full share of load; 0: at once.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 60]},
        ),
    ] = 0.0
    forecast: Annotated[
        bool,
        Meta(
            title="Forecast",
            description="Adds engines ahead of load, by the trend of the last minutes and, with enough history, the "
            "same time in past seasons.",
        ),
    ] = True
    season_s: Annotated[
        float,
        Meta(
            ge=60,
            le=604_800,
            title="Season",
            description="Period of the load pattern.",
            extra_json_schema={"x-unit": "s", "x-usual": [86400, 604800]},
        ),
    ] = 86_400.0
    budget_engine_h: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            title="Engine hours per day",
            description="Adds no engine beyond this many engine hours in the last 24 hours; 0: no limit.",
            extra_json_schema={"x-unit": "h", "x-usual": [24, 2400]},
        ),
    ] = 0.0
    engine_h_cost: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            title="Price per engine hour",
            description="In the currency of the cost per day.",
            extra_json_schema={"x-unit": "per h", "x-usual": [0.5, 50]},
        ),
    ] = 0.0
    budget_cost: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            title="Cost per day",
            description="Adds no engine beyond this cost in the last 24 hours; 0: no limit.",
            extra_json_schema={"x-unit": "per day", "x-usual": [10, 10000]},
        ),
    ] = 0.0
