"""The settings of a pool's control slice, as an automation document holds them."""

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
            title="Control share",
            description="Share of the sessions that the simple rule places, so that the policy is always compared with "
            "it; 0: no control slice.",
            extra_json_schema={"x-unit": "share", "x-usual": [0, 0.05]},
        ),
    ] = 0.0
    placement: Annotated[
        Literal["least_loaded", "round_robin"],
        Meta(title="Simple rule", description="Where the control slice's requests go; it knows nothing of caches."),
    ] = "least_loaded"
    fall_back: Annotated[
        bool,
        Meta(
            title="Fall back",
            description="Let the simple rule place all sessions while the policy loses to it; off: only compare.",
        ),
    ] = True
    guards: Annotated[
        GuardDocument,
        Meta(title="Losing", description="By how much the policy must be worse than the simple rule to lose."),
    ] = GuardDocument()
    hold_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Losing for",
            description="The policy must lose for this long before the simple rule takes over.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 120]},
        ),
    ] = 20.0
    cool_down_s: Annotated[
        float,
        Meta(
            ge=10,
            le=86_400,
            title="Try again after",
            description="After so long the policy gets a share again; each time it loses again this doubles, up to 16 "
            "times.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 1800]},
        ),
    ] = 300.0
    probe_share: Annotated[
        float,
        Meta(
            gt=0,
            le=0.5,
            title="Share to try with",
            description="Share of the sessions that the policy gets when it is tried again.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.2]},
        ),
    ] = 0.1
    probe_s: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            title="Try for",
            description="The policy must do well for this long to get all sessions back.",
            extra_json_schema={"x-unit": "s", "x-usual": [30, 600]},
        ),
    ] = 60.0
