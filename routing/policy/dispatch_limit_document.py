"""The policy's group on pushing: when an engine is given another request (SkyWalker §3.3)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

PENDING, OUTSTANDING, BLIND = "pending", "outstanding", "blind"


class PushDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a waiting ticket may go to its engine."""

    mode: Annotated[
        Literal["pending", "outstanding", "blind"],
        Meta(
            title="Push when",
            description="pending: the prefill window has room and the engine reports nothing that it has accepted and "
            "not started. outstanding: fewer requests than the limit are unfinished there. blind: at once.",
        ),
    ] = "pending"
    max_outstanding: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            title="Outstanding limit",
            description="Granted, unfinished requests that an engine may have (mode outstanding).",
            extra_json_schema={"x-unit": "requests", "x-usual": [4, 64]},
        ),
    ] = 16
    report_max_age_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            title="Reports are good for",
            description="An older report of an engine is ignored: its prefill window alone then decides, which the "
            "engine's load shows.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.3, 1]},
        ),
    ] = 0.5
    keep_room: Annotated[
        bool,
        Meta(
            title="Wait for memory",
            description="Holds a prompt back while the engine reports too little free KV memory for it (mode pending).",
        ),
    ] = True
