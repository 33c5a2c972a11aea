"""Settings of engine health in an automation document."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from planning.documents.automation_mode import ACT, Mode
from routing.policy.setting import about, number


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds for unhealthy engines, the duration of their quarantine, and their slow start."""

    stale_s: ClassVar[float] = 5.0
    """Older engine reports are ignored; the engine keeps its last state."""
    silent_s: ClassVar[float] = 2.0
    """An engine whose probes get no answer for this long is quarantined."""
    slow_factor: ClassVar[float] = 3.0
    """An engine is slow if it takes this many times as long as its peers and as its cost model predicts."""
    slow_samples: ClassVar[int] = 3
    """Requests in the window needed to judge speed."""
    slow_s: ClassVar[float] = 15.0
    """A slow engine is quarantined after this time, a slower one sooner, but not before a third of it."""
    flaps: ClassVar[int] = 3
    """Losses or restarts within the flapping window that quarantine an engine."""
    flap_window_s: ClassVar[float] = 180.0
    """Window for counting losses and restarts."""
    slow_start_from: ClassVar[float] = 0.1
    """Share of its load with which a returning engine starts."""

    mode: Annotated[
        Mode,
        about(
            "Engine health",
            "off: circuit breaker only. advise: show verdicts. act: quarantined engines get no work and return with "
            "slow start.",
        ),
    ] = ACT
    stall_s: Annotated[
        float,
        about(
            "Stall timeout",
            "Marks an engine suspect if its requests and counters make no progress for this long beyond its longest "
            "prefill while other engines do. It gets no new work until it makes progress; running requests stay.",
        ),
        number("s", gt=0, le=600, usual=(5, 30)),
    ] = 10.0
    # T = 3 s in DualMap A.8.3.
    bottleneck_s: Annotated[
        float,
        about(
            "Decode bottleneck timeout",
            "An engine that keeps decoding but completes no pending prefill for this long is suspect.",
        ),
        number("s", gt=0, le=600, usual=(2, 10)),
    ] = 3.0
    # Envoy's outlier detection has the same limit, and likewise the quarantine, its maximum, and both shares below.
    failures: Annotated[
        int,
        about("Consecutive failures", "Failed requests in a row that quarantine an engine."),
        number("requests", ge=1, le=1000, usual=(3, 10)),
    ] = 5
    ejection_s: Annotated[
        float,
        about("Quarantine", "Duration of the first quarantine; the n-th in a row lasts n times as long."),
        number("s", gt=0, le=3600, usual=(10, 60)),
    ] = 30.0
    ejection_max_s: Annotated[
        float,
        about(
            "Max quarantine",
            "Maximum duration of a quarantine. Staying healthy for this long resets the duration to the first.",
        ),
        number("s", gt=0, le=86_400, usual=(120, 900)),
    ] = 300.0
    outlier_share: Annotated[
        float,
        about("Max ejection", "Maximum share of a pool that may be quarantined as outliers; one engine always may."),
        number("share", ge=0, le=1, usual=(0.05, 0.2)),
    ] = 0.1
    panic_share: Annotated[
        float,
        about("Panic threshold", "If the share of healthy engines is smaller, no engine is quarantined as an outlier."),
        number("share", ge=0, le=1, usual=(0.3, 0.5)),
    ] = 0.5
    slow_start_s: Annotated[
        float,
        about("Slow start", "Time until a returning engine gets its full share of load; 0: at once."),
        number("s", ge=0, le=3600, usual=(15, 120)),
    ] = 30.0
