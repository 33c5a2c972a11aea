"""The policy's group on pushing: when an engine is given another request (SkyWalker §3.3)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

PENDING, OUTSTANDING, BLIND = "pending", "outstanding", "blind"


class PushDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a queued request may go to its engine."""

    mode: Annotated[
        Literal["pending", "outstanding", "blind"],
        Meta(
            title="Dispatch when",
            description="pending: the prefill window has room and the engine reports no accepted request that has not "
            "started. outstanding: fewer in-flight requests than the limit. blind: at once.",
        ),
    ] = "pending"
    max_outstanding: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            title="In-flight limit",
            description="Maximum in-flight requests per engine (mode outstanding).",
            extra_json_schema={"x-unit": "requests", "x-usual": [4, 64]},
        ),
    ] = 16
    report_max_age_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            title="Report TTL",
            description="Ignores older engine reports; the prefill window alone then decides. The engine's load shows "
            "this.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.3, 1]},
        ),
    ] = 0.5
    keep_room: Annotated[
        bool,
        Meta(
            title="Wait for memory",
            description="Holds a request while the engine reports too little free KV memory for it (mode pending).",
        ),
    ] = True
