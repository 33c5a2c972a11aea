"""Settings of rebalancing in an automation document."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from planning.documents.automation_mode import ADVISE, Mode
from routing.policy.setting import about, number


class RebalanceDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When hot prefixes get more engines, and how much can be moved at once (DualMap §3.3, Mooncake §4.2)."""

    hot_factor: ClassVar[float] = 2.0
    """An engine is hot if its in-flight work is this many times the pool's mean."""
    hot_work_s: ClassVar[float] = 2.0
    """An engine with less in-flight work is never hot."""
    prefix_share: ClassVar[float] = 0.2
    """Minimum share of a hot engine's recent work for a prefix to be widened."""
    d_max: ClassVar[int] = 4
    """Engines that a widened prefix can go to."""
    max_widened: ClassVar[int] = 16
    """Maximum prefixes widened at a time."""
    recomputed_share: ClassVar[float] = 0.3
    """No prefix is widened while a larger share of prompt tokens is recomputed although another engine holds them."""
    max_moves: ClassVar[int] = 16
    """Maximum queued requests that one round may move to another candidate."""

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
    cool_down_s: Annotated[
        float,
        about("Narrow after", "Minimum time a prefix stays widened."),
        number("s", ge=0, le=86_400, usual=(30, 600)),
    ] = 60.0
