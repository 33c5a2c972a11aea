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
            description="off: requests migrate by the placement's own rule alone. advise: plans are shown. act: hot "
            "prefixes get more candidates and tickets move.",
        ),
    ] = ADVISE
    cv_high: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Uneven above",
            description="Coefficient of variation of pending prefill tokens over the engines, each smoothed, from "
            "which the load counts as uneven.",
            extra_json_schema={"x-unit": "× mean", "x-usual": [0.5, 1.5]},
        ),
    ] = 0.8
    cv_low: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Even below",
            description="Below this coefficient of variation, widened prefixes go back to their usual engines.",
            extra_json_schema={"x-unit": "× mean", "x-usual": [0.2, 0.6]},
        ),
    ] = 0.4
    hold_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Persistent after",
            description="A hotspot must last this long before anything is done about it.",
            extra_json_schema={"x-unit": "s", "x-usual": [3, 30]},
        ),
    ] = 5.0
    hot_factor: Annotated[
        float,
        Meta(
            gt=1,
            le=100,
            title="Hot at",
            description="An engine is hot when its outstanding work is this many times the pool's mean.",
            extra_json_schema={"x-unit": "×", "x-usual": [1.5, 4]},
        ),
    ] = 2.0
    hot_work_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Hot from",
            description="With less work than this an engine is never hot.",
            extra_json_schema={"x-unit": "s", "x-usual": [1, 10]},
        ),
    ] = 2.0
    prefix_share: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            title="Hot prefix at",
            description="Share of a hot engine's recent work that one prefix must have to be widened.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.5]},
        ),
    ] = 0.2
    d_max: Annotated[
        int,
        Meta(
            ge=2,
            le=8,
            title="Candidates at most",
            description="Engines that a widened prefix can go to.",
            extra_json_schema={"x-unit": "engines", "x-usual": [3, 6]},
        ),
    ] = 4
    max_widened: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            title="Widened prefixes",
            description="Prefixes that may be widened at one time.",
            extra_json_schema={"x-unit": "prefixes", "x-usual": [4, 64]},
        ),
    ] = 16
    cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Narrow after",
            description="A widened prefix stays so for this long at least.",
            extra_json_schema={"x-unit": "s", "x-usual": [30, 600]},
        ),
    ] = 60.0
    recomputed_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Recomputing at most",
            description="While more than this share of the prompt tokens is computed although some engine holds it, no "
            "prefix is widened: more spreading would cost more than it evens out.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.4]},
        ),
    ] = 0.3
    max_moves: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            title="Tickets per round",
            description="Waiting tickets that one round may move to another of their candidates.",
            extra_json_schema={"x-unit": "tickets", "x-usual": [4, 64]},
        ),
    ] = 16
