"""The settings of rebalancing, as an automation document holds them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from planning.documents.automation_mode import ADVISE, Mode


class RebalanceDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a hot prefix gets more engines, and how much may be moved at once (DualMap §3.3, Mooncake §4.2)."""

    mode: Annotated[
        Mode,
        Meta(
            title="Rebalancing",
            description="off: only the placement's own migration. advise: show plans. act: widen hot prefixes and move "
            "queued requests.",
        ),
    ] = ADVISE
    cv_high: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Uneven above",
            description="Load CV (of smoothed pending prefill tokens) from which the load counts as uneven.",
            extra_json_schema={"x-unit": "× mean", "x-usual": [0.5, 1.5]},
        ),
    ] = 0.8
    cv_low: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Even below",
            description="Load CV below which widened prefixes return to their usual engines.",
            extra_json_schema={"x-unit": "× mean", "x-usual": [0.2, 0.6]},
        ),
    ] = 0.4
    hold_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Persistence",
            description="Time a hotspot must last before any action.",
            extra_json_schema={"x-unit": "s", "x-usual": [3, 30]},
        ),
    ] = 5.0
    hot_factor: Annotated[
        float,
        Meta(
            gt=1,
            le=100,
            title="Hot threshold",
            description="An engine is hot if its in-flight work is this many times the pool's mean.",
            extra_json_schema={"x-unit": "×", "x-usual": [1.5, 4]},
        ),
    ] = 2.0
    hot_work_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Min hot work",
            description="An engine with less in-flight work is never hot.",
            extra_json_schema={"x-unit": "s", "x-usual": [1, 10]},
        ),
    ] = 2.0
    prefix_share: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            title="Hot prefix threshold",
            description="Minimum share of a hot engine's recent work for a prefix to be widened.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.5]},
        ),
    ] = 0.2
    d_max: Annotated[
        int,
        Meta(
            ge=2,
            le=8,
            title="Max candidates",
            description="Engines that a widened prefix can go to.",
            extra_json_schema={"x-unit": "engines", "x-usual": [3, 6]},
        ),
    ] = 4
    max_widened: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            title="Max widened prefixes",
            description="Maximum prefixes widened at a time.",
            extra_json_schema={"x-unit": "prefixes", "x-usual": [4, 64]},
        ),
    ] = 16
    cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Narrow after",
            description="Minimum time a prefix stays widened.",
            extra_json_schema={"x-unit": "s", "x-usual": [30, 600]},
        ),
    ] = 60.0
    recomputed_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Max recompute share",
            description="Widens no prefix while more than this share of prompt tokens is recomputed although another "
            "engine holds it: spreading further would cost more than it balances.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.4]},
        ),
    ] = 0.3
    max_moves: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            title="Max moves per round",
            description="Maximum queued requests that one round may move to another candidate.",
            extra_json_schema={"x-unit": "requests", "x-usual": [4, 64]},
        ),
    ] = 16
