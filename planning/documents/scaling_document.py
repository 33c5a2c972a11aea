"""Settings of scaling in an automation document."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from planning.documents.automation_mode import ADVISE, OFF, Mode
from routing.policy.setting import about, number


class ScalingDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on a pool's number of engines, and when to add or remove engines (DualMap §3.4, A.3.3)."""

    min_requests: ClassVar[int] = 20
    """Requests in the window needed to judge attainment."""
    hysteresis: ClassVar[float] = 0.2
    """The pool shrinks only if the expected load stays this far below the target utilization afterwards."""

    mode: Annotated[
        Mode, about("Scaling", "off: nothing. advise: show plans. act: the pool's actuator starts and drains engines.")
    ] = ADVISE
    min_engines: Annotated[
        int,
        about(
            "Min engines",
            "The pool never drains below this. 0: an idle pool has no engine, and its next request waits for one.",
        ),
        number("engines", ge=0, le=10_000, usual=(0, 16)),
    ] = 1
    max_engines: Annotated[
        int, about("Max engines", "The pool never grows above this."), number("engines", ge=1, le=10_000, usual=(2, 64))
    ] = 16
    attainment: Annotated[
        float,
        about("Attainment", "Target share of requests that meet their TTFT objective."),
        number("share", gt=0, lt=1, usual=(0.9, 0.99)),
    ] = 0.9
    window_s: Annotated[
        float, about("Window", "Window for attainment, queue and load."), number("s", gt=0, le=3600, usual=(15, 120))
    ] = 30.0
    utilisation: Annotated[
        float,
        about("Target utilization", "Target share of engine time for the expected load."),
        number("share", gt=0, le=1, usual=(0.5, 0.75)),
    ] = 0.6
    max_up: Annotated[
        int,
        about("Max added at once", "Maximum engines added per plan."),
        number("engines", ge=1, le=1000, usual=(1, 8)),
    ] = 4
    max_down: Annotated[
        int,
        about("Max drained at once", "Maximum engines drained per plan."),
        number("engines", ge=1, le=1000, usual=(1, 2)),
    ] = 1
    up_cool_down_s: Annotated[
        float,
        about("Scale-up cooldown", "Time between additions, after the warm-up."),
        number("s", ge=0, le=86_400, usual=(15, 120)),
    ] = 30.0
    down_cool_down_s: Annotated[
        float,
        about("Scale-down cooldown", "Time after any change, at low load, before an engine is drained."),
        number("s", ge=0, le=86_400, usual=(60, 900)),
    ] = 120.0
    warm_up_s: Annotated[
        float,
        about("Warm-up", "Time from starting an engine until it serves. The forecast looks this far ahead."),
        number("s", ge=0, le=3600, usual=(10, 300)),
    ] = 30.0
    slow_start_s: Annotated[
        float,
        about("Slow start", "Time until a new engine gets its full share of load; 0: at once."),
        number("s", ge=0, le=3600, usual=(0, 60)),
    ] = 0.0
    forecast: Annotated[
        bool,
        about(
            "Forecast",
            "Adds engines ahead of load, by the trend of the last minutes and, with enough history, the same time in "
            "past seasons.",
        ),
    ] = True
    season_s: Annotated[
        float, about("Season", "Period of the load pattern."), number("s", ge=60, le=604_800, usual=(86400, 604800))
    ] = 86_400.0
    budget_engine_h: Annotated[
        float,
        about(
            "Engine hours per day", "Adds no engine beyond this many engine hours in the last 24 hours; 0: no limit."
        ),
        number("h", ge=0, le=1e6, usual=(24, 2400)),
    ] = 0.0
    engine_h_cost: Annotated[
        float,
        about("Price per engine hour", "In the currency of the cost per day."),
        number("per h", ge=0, le=1e6, usual=(0.5, 50)),
    ] = 0.0
    budget_cost: Annotated[
        float,
        about("Cost per day", "Adds no engine beyond this cost in the last 24 hours; 0: no limit."),
        number("per day", ge=0, le=1e9, usual=(10, 10000)),
    ] = 0.0

    @property
    def starts_on_demand(self) -> bool:
        """Return whether the pool can be without engines and get one when a request waits."""
        return self.min_engines == 0 and self.mode != OFF
