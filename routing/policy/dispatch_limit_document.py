"""Settings that limit dispatch: when an engine gets another request (SkyWalker §3.3)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from routing.policy.setting import about, number

PENDING: Final = "pending"
REPORTED: Final = "reported"
IN_FLIGHT: Final = "in_flight"
BLIND: Final = "blind"


class DispatchLimitDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions for dispatching a queued request to its engine."""

    mode: Annotated[
        Literal["pending", "reported", "in_flight", "blind"],
        about(
            "Dispatch when",
            "pending: the prefill window has room and the engine reports no accepted request that has not started. "
            "reported: it reports none, whatever was dispatched since (SkyWalker's SP-P as published). "
            "in_flight: fewer in-flight requests than the limit. blind: at once.",
        ),
    ] = "pending"
    in_flight_limit: Annotated[
        int,
        about("In-flight limit", "Maximum in-flight requests per engine (mode in_flight)."),
        number("requests", ge=1, le=100_000, usual=(4, 64)),
    ] = 16
    # Reports help up to this age, and do harm from 1 s on (docs/decisions/0012-default-of-a-new-pool.md).
    report_ttl_s: Annotated[
        float,
        about(
            "Report TTL",
            "Ignores older engine reports; the prefill window alone then decides. The engine's load shows this.",
        ),
        number("s", gt=0, le=60, usual=(0.3, 1)),
    ] = 0.5
    wait_for_memory: Annotated[
        bool,
        about(
            "Wait for memory",
            "Holds a request while the engine reports too little free KV memory for it (mode pending).",
        ),
    ] = True
