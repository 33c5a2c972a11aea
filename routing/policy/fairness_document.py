"""The policy's group on fairness between tenants."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MAX_TENANTS = 1000

TenantId = Annotated[str, Meta(min_length=1, max_length=128)]
Weight = Annotated[float, Meta(ge=0.001, le=1_000_000)]


class FairnessDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How waiting tenants share an engine, or the pool's queue; whoever waits alone gets everything."""

    enabled: Annotated[
        bool,
        Meta(
            title="Fair between tenants",
            description="Grants go round the tenants that wait by their weights; within a tenant by the queue order. "
            "Live pools do so by themselves once two tenants have API keys.",
        ),
    ] = False
    weights: Annotated[
        dict[TenantId, Weight],
        Meta(
            max_length=MAX_TENANTS,
            title="Weights",
            description="By tenant id: twice the weight is twice the prefill time while both wait.",
        ),
    ] = {}
    default_weight: Annotated[
        float,
        Meta(
            ge=0.001,
            le=1_000_000,
            title="Usual weight",
            description="Weight of a tenant that is not listed.",
            extra_json_schema={"x-unit": "×", "x-usual": [1, 10]},
        ),
    ] = 1.0
    max_share: Annotated[
        float,
        Meta(
            ge=0.01,
            le=1,
            title="Largest share",
            description="No tenant gets more than this share of the prefill time while others wait, whatever its "
            "weight; where that leaves something over, the tenants that wait share it evenly.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.3, 1]},
        ),
    ] = 1.0
