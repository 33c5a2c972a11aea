"""The settings of a pool's holdback, as an automation document holds them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from planning.documents.guardrail_document import GuardDocument


class SliceDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many sessions a simple rule keeps, and when it takes all of them because the policy loses to it."""

    share: Annotated[
        float,
        Meta(
            ge=0,
            le=0.1,
            title="Holdback share",
            description="Share of sessions that the simple rule places, for a constant comparison with the policy; 0: "
            "no holdback.",
            extra_json_schema={"x-unit": "share", "x-usual": [0, 0.05]},
        ),
    ] = 0.0
    placement: Annotated[
        Literal["least_loaded", "round_robin"],
        Meta(title="Simple rule", description="Places the holdback's requests without regard to caches."),
    ] = "least_loaded"
    fall_back: Annotated[
        bool,
        Meta(
            title="Fall back",
            description="Lets the simple rule place all sessions while the policy loses to it; off: compare only.",
        ),
    ] = True
    guards: Annotated[
        GuardDocument,
        Meta(title="Guardrails", description="How much worse than the simple rule the policy must be to lose."),
    ] = GuardDocument()
    hold_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Fall back after",
            description="Time the policy must lose before the simple rule takes over.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 120]},
        ),
    ] = 20.0
    cool_down_s: Annotated[
        float,
        Meta(
            ge=10,
            le=86_400,
            title="Cooldown",
            description="Time until the policy gets a share again; doubles after each loss, up to 16 times.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 1800]},
        ),
    ] = 300.0
    probe_share: Annotated[
        float,
        Meta(
            gt=0,
            le=0.5,
            title="Probe share",
            description="Share of sessions that the policy gets after the cooldown.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.2]},
        ),
    ] = 0.1
    probe_s: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            title="Probe time",
            description="Time without a loss until the policy gets all sessions back.",
            extra_json_schema={"x-unit": "s", "x-usual": [30, 600]},
        ),
    ] = 60.0
