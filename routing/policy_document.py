"""The routing half of a policy: which stages of the pipeline are on, and with which settings.

Every field carries its unit, range and a sentence; the same types are the schema of the console's
form, of the API, of the simulator and of the gateway.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 1

Parameter = bool | int | float | str


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One placement or queue order by its registered name, with its own parameters."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    params: dict[str, Parameter] = {}


class PrefillCostDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """seconds = base + per_token·u + per_token_squared·u·(L − u/2) + per_hit_token·hit (u uncached, L prompt)."""

    base_s: Annotated[float, Meta(ge=0, le=10, description="Fixed time of one prefill, seconds.")] = 0.010
    per_token_s: Annotated[float, Meta(gt=0, le=1, description="Seconds per uncached token.")] = 0.08e-3
    per_token_squared_s: Annotated[
        float, Meta(ge=0, le=1e-3, description="Seconds per pair of uncached and attended token.")
    ] = 2e-9
    per_hit_token_s: Annotated[float, Meta(ge=0, le=1e-2, description="Seconds per cached token.")] = 2e-6


class RoutingPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one pool routes."""

    schema_version: Annotated[int, Meta(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    placement: Stage = msgspec.field(default_factory=lambda: Stage(name="least_cost"))
    order: Stage = msgspec.field(default_factory=lambda: Stage(name="shed"))
    ttft_slo_s: Annotated[
        float, Meta(gt=0, le=3600, description="Time to first token that a request should meet, seconds.")
    ] = 5.0
    prefill_cost: PrefillCostDocument = msgspec.field(default_factory=PrefillCostDocument)
    grant_tokens: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Uncached tokens that may be prefilling on one engine at once."),
    ] = 2048
    grant_lookahead_s: Annotated[
        float,
        Meta(ge=0, le=5, description="A ticket is granted this long before its engine is expected to be free."),
    ] = 0.05
    max_tickets: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Tickets that may wait in the pool before new ones get 429.")
    ] = 2000
    max_wait_s: Annotated[
        float, Meta(gt=0, le=3600, description="A ticket that waited this long is refused with 429.")
    ] = 60.0
    reservation_ttl_s: Annotated[
        float, Meta(gt=0, le=86_400, description="A reservation nobody completes is released after this time.")
    ] = 600.0
