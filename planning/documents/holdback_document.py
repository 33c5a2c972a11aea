"""Settings of a pool's holdback in an automation document."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from planning.documents.guardrail_document import GuardrailDocument
from routing.policy.setting import about, number


class SliceDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Share of sessions on a simple rule, and when that rule gets all sessions because the policy does worse."""

    probe_share: ClassVar[float] = 0.1
    """Share of sessions that the policy gets after the cooldown."""
    probe_s: ClassVar[float] = 60.0
    """How long the policy must not be worse before it gets all sessions back."""

    share: Annotated[
        float,
        about(
            "Holdback share",
            "Share of sessions that the simple rule places, for a constant comparison with the policy; 0: no holdback.",
        ),
        number("share", ge=0, le=0.1, usual=(0, 0.05)),
    ] = 0.0
    placement: Annotated[
        Literal["least_loaded", "round_robin"],
        about("Simple rule", "Places the holdback's requests without regard to caches."),
    ] = "least_loaded"
    fall_back: Annotated[
        bool,
        about("Fall back", "Lets the simple rule place all sessions while the policy does worse; off: compare only."),
    ] = True
    guardrails: Annotated[
        GuardrailDocument,
        about("Guardrails", "Minimum difference at which the policy counts as worse than the simple rule."),
    ] = GuardrailDocument()
    hold_s: Annotated[
        float,
        about("Fall back after", "How long the policy must do worse before the simple rule takes over."),
        number("s", ge=0, le=3600, usual=(10, 120)),
    ] = 20.0
    cool_down_s: Annotated[
        float,
        about(
            "Cooldown",
            "Time until the policy gets a share again; doubles each time the policy does worse, up to 16x.",
        ),
        number("s", ge=10, le=86_400, usual=(60, 1800)),
    ] = 300.0
