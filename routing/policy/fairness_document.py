"""Settings of fairness between tenants in a policy document."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from routing.policy.setting import about, number

MAX_TENANTS = 1000

TenantId = Annotated[str, Meta(min_length=1, max_length=128)]
Weight = Annotated[float, Meta(ge=0.001, le=1_000_000)]


class FairnessDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How waiting tenants share an engine or the pool's queue. A single waiting tenant gets all of it."""

    default_weight: ClassVar[float] = 1.0
    """Weight of tenants that are not listed."""

    enabled: Annotated[
        bool,
        about(
            "Fair to tenants",
            "Dispatches alternate between waiting tenants by weight, and follow the queue order within a tenant. Live "
            "pools turn it on once two tenants have API keys.",
        ),
    ] = False
    weights: Annotated[
        dict[TenantId, Weight],
        about("Weights", "By tenant id. Twice the weight gets twice the prefill time while both wait."),
        Meta(max_length=MAX_TENANTS),
    ] = {}
    max_share: Annotated[
        float,
        about(
            "Max share",
            "Maximum share of prefill time per tenant while others wait. Waiting tenants split the remainder evenly.",
        ),
        number("share", ge=0.01, le=1, usual=(0.3, 1)),
    ] = 1.0
