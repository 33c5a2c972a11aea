"""The routing half of a policy: which stages of the pipeline are on, and with which settings.

Every field has a title, its range, and a description. x-unit is its unit, x-usual the range that most pools use, and
x-group its section of the form. The same types are the schema of the console's form, of the API, of the simulator, and
of the gateway.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from routing.policy.admission_document import MAX_CLASSES, AdmissionDocument, ClassName, SloClass
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.dispatch_limit_document import PushDocument
from routing.policy.fairness_document import FairnessDocument
from routing.policy.schema_versions import SchemaLine

SCHEMA_VERSION = 1
ROUTING_SCHEMA = SchemaLine("routing policies", SCHEMA_VERSION)

Parameter = bool | int | float | str

AdvisoryRule = Literal["off", "gated", "symphony", "sticky"]
OFF: AdvisoryRule = "off"
GATED: AdvisoryRule = "gated"
SYMPHONY: AdvisoryRule = "symphony"
STICKY: AdvisoryRule = "sticky"


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One placement or queue order by its registered name, with its own parameters."""

    name: Annotated[str, Meta(min_length=1, max_length=64, title="Rule", description="Name of the rule.")]
    params: Annotated[dict[str, Parameter], Meta(title="Parameters", description="Settings of the rule.")] = {}


class PrefillCostDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """seconds = base + per_token·u + per_token_squared·u·(L − u/2) + per_hit_token·hit (u uncached, L prompt)."""

    base_s: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Base time",
            description="Fixed time of one prefill.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.005, 0.05]},
        ),
    ] = 0.010
    per_token_s: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            title="Per token",
            description="Time per uncached prompt token.",
            extra_json_schema={"x-unit": "s per tok", "x-usual": [1e-5, 5e-4]},
        ),
    ] = 0.08e-3
    per_token_squared_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e-3,
            title="Per token pair",
            description="Time per pair of an uncached token and a token it attends to.",
            extra_json_schema={"x-unit": "s per tok²", "x-usual": [0, 1e-7]},
        ),
    ] = 2e-9
    per_hit_token_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e-2,
            title="Per cached token",
            description="Time per cached prompt token.",
            extra_json_schema={"x-unit": "s per tok", "x-usual": [0, 5e-5]},
        ),
    ] = 2e-6


class RoutingPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one pool routes."""

    schema_version: Annotated[
        int, Meta(ge=1, le=SCHEMA_VERSION, title="Schema", description="Schema version of this document.")
    ] = SCHEMA_VERSION
    placement: Annotated[Stage, Meta(title="Placement", description="Chooses the engine of each request.")] = (
        msgspec.field(default_factory=lambda: Stage(name="least_cost"))
    )
    order: Annotated[
        Stage, Meta(title="Queue order", description="Chooses which queued request is dispatched next.")
    ] = msgspec.field(default_factory=lambda: Stage(name="shed", params={"forget_blocks": True}))
    ttft_slo_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="TTFT objective",
            description="Target time to first token. Slower requests count as late.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.5, 30], "x-group": "Service level"},
        ),
    ] = 5.0
    tbt_slo_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            title="TPOT objective",
            description="Target mean time per output token. Admission judges decode load by it.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.02, 0.5], "x-group": "Service level"},
        ),
    ] = 0.1
    slo_classes: Annotated[
        dict[ClassName, SloClass],
        Meta(
            max_length=MAX_CLASSES,
            title="SLO classes",
            description="Objectives of requests or API keys that name the class.",
        ),
    ] = {}
    admission: Annotated[
        AdmissionDocument,
        Meta(title="Admission", description="Rejects requests that the fleet cannot serve within their objectives."),
    ] = AdmissionDocument()
    prefill_cost: Annotated[
        PrefillCostDocument,
        Meta(title="Prefill cost", description="Estimates the prefill time of a prompt."),
    ] = msgspec.field(default_factory=PrefillCostDocument)
    decode_cost: Annotated[
        DecodeCostDocument,
        Meta(title="Decode cost", description="Estimates the time of one decode step."),
    ] = DecodeCostDocument()
    cost: Annotated[
        Literal["fixed", "fitted"],
        Meta(
            title="Cost model",
            description="fixed: the costs below. fitted: costs learned from observed requests, where they are more "
            "accurate.",
            extra_json_schema={"x-group": "Cost"},
        ),
    ] = "fixed"
    advisories: Annotated[
        AdvisoryRule,
        Meta(
            title="Advisories",
            description="off: ignores advisories. gated: reserves the cheapest engine and prefetches KV that arrives "
            "in time. symphony: reserves the least loaded engine and always prefetches. sticky: keeps sessions on "
            "their last engine.",
            extra_json_schema={"x-group": "Dispatch"},
        ),
    ] = "off"
    bottleneck_s: Annotated[
        float,
        Meta(
            ge=0,
            le=600,
            title="Decode bottleneck timeout",
            description="If an engine with full KV memory produces no first token for this long despite pending "
            "prefills, its expected delay is as long again; 0: never.",
            extra_json_schema={"x-unit": "s", "x-usual": [2, 10], "x-group": "Cost"},
        ),
    ] = 0.0
    region_rule: Annotated[
        Literal["locality_offload", "skywalker", "skywalker_ch", "region_local"],
        Meta(
            title="Region rule",
            description="Chooses which requests go to another region, where regions are connected. locality_offload: "
            "lost cache weighed against load. skywalker: only without local room, by longest match. skywalker_ch: by "
            "hash ring. region_local: none.",
            extra_json_schema={"x-group": "Dispatch"},
        ),
    ] = "locality_offload"
    retry_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Retry budget",
            description="Maximum share of running requests that may be retries after an engine failure.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.3], "x-group": "Limits"},
        ),
    ] = 0.2
    retry_least: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            title="Min retries",
            description="Retries always allowed, whatever the load.",
            extra_json_schema={"x-unit": "requests", "x-usual": [1, 10], "x-group": "Limits"},
        ),
    ] = 3
    push: Annotated[
        PushDocument,
        Meta(title="Dispatch limit", description="Holds requests at the gateway until their engine can start them."),
    ] = PushDocument()
    fairness: Annotated[
        FairnessDocument,
        Meta(title="Fairness", description="Shares engines between waiting tenants."),
    ] = FairnessDocument()
    max_passed_over_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Starvation limit",
            description="A queued request that has been overtaken for this long goes next, even if it is already "
            "late; 0: no limit.",
            extra_json_schema={"x-unit": "s", "x-usual": [10, 60], "x-group": "Dispatch"},
        ),
    ] = 0.0
    grant_tokens: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            title="Prefill window",
            description="Maximum uncached tokens in prefill on one engine at a time.",
            extra_json_schema={"x-unit": "tok", "x-usual": [1024, 16_384], "x-group": "Dispatch"},
        ),
    ] = 2048
    grant_lookahead_s: Annotated[
        float,
        Meta(
            ge=0,
            le=5,
            title="Look-ahead",
            description="Dispatches a request this long before its engine is expected to be free.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 0.5], "x-group": "Dispatch"},
        ),
    ] = 0.05
    max_tickets: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            title="Queue limit",
            description="Maximum queued requests in the pool; further requests get 429.",
            extra_json_schema={"x-unit": "requests", "x-usual": [100, 20_000], "x-group": "Limits"},
        ),
    ] = 2000
    max_wait_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            title="Max wait",
            description="Rejects a request with 429 after it has waited this long.",
            extra_json_schema={"x-unit": "s", "x-usual": [5, 300], "x-group": "Limits"},
        ),
    ] = 60.0
    reservation_ttl_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            title="Reservation lifetime",
            description="Releases a reservation without a report after this time.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 3600], "x-group": "Limits"},
        ),
    ] = 600.0

    def fair_to_tenants(self) -> RoutingPolicy:
        """Return the policy with dispatches that go round the tenants that wait."""
        if self.fairness.enabled:
            return self
        return msgspec.structs.replace(self, fairness=msgspec.structs.replace(self.fairness, enabled=True))
