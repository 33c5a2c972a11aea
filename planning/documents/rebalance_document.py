"""Settings of rebalancing in an automation document."""

from __future__ import annotations

from typing import Annotated

import msgspec

from planning.documents.automation_mode import ADVISE, Mode
from routing.policy.setting import about, number


class RebalanceDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When hot prefixes get more engines, and how much can be moved at once (DualMap §3.3, Mooncake §4.2)."""

    mode: Annotated[
        Mode,
        about(
            "Rebalancing",
            "off: only the placement's own migration. advise: show plans. act: widen hot prefixes and move queued "
            "requests.",
        ),
    ] = ADVISE
    cv_high: Annotated[
        float,
        about("Uneven above", "Load CV (of smoothed pending prefill tokens) from which the load counts as uneven."),
        number("× mean", ge=0, le=10, usual=(0.5, 1.5)),
    ] = 0.8
    cv_low: Annotated[
        float,
        about("Even below", "Load CV below which widened prefixes return to their usual engines."),
        number("× mean", ge=0, le=10, usual=(0.2, 0.6)),
    ] = 0.4
    hold_s: Annotated[
        float,
        about("Persistence", "Time a hotspot must last before any action."),
        number("s", ge=0, le=3600, usual=(3, 30)),
    ] = 5.0
    hot_factor: Annotated[
        float,
        about("Hot threshold", "An engine is hot if its in-flight work is this many times the pool's mean."),
        number("×", gt=1, le=100, usual=(1.5, 4)),
    ] = 2.0
    hot_work_s: Annotated[
        float,
        about("Min hot work", "An engine with less in-flight work is never hot."),
        number("s", ge=0, le=3600, usual=(1, 10)),
    ] = 2.0
    prefix_share: Annotated[
        float,
        about("Hot prefix threshold", "Minimum share of a hot engine's recent work for a prefix to be widened."),
        number("share", gt=0, le=1, usual=(0.1, 0.5)),
    ] = 0.2
    d_max: Annotated[
        int,
        about("Max candidates", "Engines that a widened prefix can go to."),
        number("engines", ge=2, le=8, usual=(3, 6)),
    ] = 4
    max_widened: Annotated[
        int,
        about("Max widened prefixes", "Maximum prefixes widened at a time."),
        number("prefixes", ge=0, le=1000, usual=(4, 64)),
    ] = 16
    cool_down_s: Annotated[
        float,
        about("Narrow after", "Minimum time a prefix stays widened."),
        number("s", ge=0, le=86_400, usual=(30, 600)),
    ] = 60.0
    recomputed_share: Annotated[
        float,
        about(
            "Max recompute share",
            "Widens no prefix while more than this share of prompt tokens is recomputed although another engine holds "
            "them.",
        ),
        number("share", ge=0, le=1, usual=(0.1, 0.4)),
    ] = 0.3
    max_moves: Annotated[
        int,
        about("Max moves per round", "Maximum queued requests that one round may move to another candidate."),
        number("requests", ge=0, le=10_000, usual=(4, 64)),
    ] = 16
