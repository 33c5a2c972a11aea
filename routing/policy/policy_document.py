"""The routing half of a policy: the enabled stages of the pipeline and their settings.

Every field has a title, a range, and a description. x-unit is its unit, x-usual the range that most pools use, and
x-group its section of the form. The same types are the schema of the console's form, the API, the simulator, and the
gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from routing.policy.admission_document import MAX_CLASSES, AdmissionDocument, ClassName, SloClass
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.fairness_document import FairnessDocument
from routing.policy.removed_settings import removed_notes, without_removed
from routing.policy.schema_versions import SchemaLine
from routing.policy.setting import about, number

SCHEMA_VERSION = 2
REMOVED = {"min_retries": 3, "fairness.default_weight": 1.0}
"""Settings of schema 1 that are constants."""


def _upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of schema 1 without removed settings, and with `gated` for the advisory rule `sticky`."""
    if document.get("advisories") == "sticky":
        document["advisories"] = GATED
    return without_removed(document, REMOVED)


def _upgrade_notes(document: Mapping[str, Any]) -> list[str]:
    sticky = document.get("advisories") == "sticky"
    notes = [f"advisories 'sticky' is for simulation only; {GATED!r} applies."] if sticky else []
    return [*notes, *removed_notes(document, REMOVED)]


ROUTING_SCHEMA = SchemaLine("routing policies", SCHEMA_VERSION, _upgraded, _upgrade_notes)

Parameter = bool | int | float | str

AdvisoryRule = Literal["off", "gated", "symphony"]
OFF: AdvisoryRule = "off"
GATED: AdvisoryRule = "gated"
SYMPHONY: AdvisoryRule = "symphony"


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One placement or queue order by its registered name, with its parameters."""

    name: Annotated[str, about("Rule", "Name of the rule."), Meta(min_length=1, max_length=64)]
    params: Annotated[dict[str, Parameter], about("Parameters", "Settings of the rule.")] = {}


class PrefillCostDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """seconds = base + per_token·u + per_token_squared·u·(L − u/2) + per_hit_token·hit (u uncached, L prompt)."""

    base_s: Annotated[
        float, about("Base time", "Fixed time of one prefill."), number("s", ge=0, le=10, usual=(0.005, 0.05))
    ] = 0.010
    per_token_s: Annotated[
        float,
        about("Per token", "Time per uncached prompt token."),
        number("s per tok", gt=0, le=1, usual=(1e-5, 5e-4)),
    ] = 0.08e-3
    per_token_squared_s: Annotated[
        float,
        about("Per token pair", "Time per pair of an uncached token and a token it attends to."),
        number("s per tok²", ge=0, le=1e-3, usual=(0, 1e-7)),
    ] = 2e-9
    per_hit_token_s: Annotated[
        float,
        about("Per cached token", "Time per cached prompt token."),
        number("s per tok", ge=0, le=1e-2, usual=(0, 5e-5)),
    ] = 2e-6


class RoutingPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Routing policy of one pool."""

    min_retries: ClassVar[int] = 3
    """Retries always allowed, whatever the load."""

    schema_version: Annotated[
        int, about("Schema", "Schema version of this document."), number(ge=1, le=SCHEMA_VERSION)
    ] = SCHEMA_VERSION
    placement: Annotated[Stage, about("Placement", "Chooses the engine of each request.")] = msgspec.field(
        default_factory=lambda: Stage(name="least_cost")
    )
    # Both defaults are chosen in docs/decisions/0012-default-of-a-new-pool.md.
    order: Annotated[Stage, about("Queue order", "Chooses which queued request is dispatched next.")] = msgspec.field(
        default_factory=lambda: Stage(name="late_last", params={"forget_blocks": True})
    )
    ttft_slo_s: Annotated[
        float,
        about("TTFT objective", "Target time to first token. Slower requests count as late."),
        number("s", gt=0, le=3600, usual=(0.5, 30), group="Service level"),
    ] = 5.0
    tpot_slo_s: Annotated[
        float,
        about("TPOT objective", "Target mean time per output token. Admission limits decode load by it."),
        number("s", gt=0, le=60, usual=(0.02, 0.5), group="Service level"),
    ] = 0.1
    slo_classes: Annotated[
        dict[ClassName, SloClass],
        about("SLO classes", "Objectives of requests or API keys that name the class."),
        Meta(max_length=MAX_CLASSES),
    ] = {}
    admission: Annotated[
        AdmissionDocument, about("Admission", "Rejects requests that the fleet cannot serve within their objectives.")
    ] = AdmissionDocument()
    prefill_cost: Annotated[PrefillCostDocument, about("Prefill cost", "Estimates the prefill time of a prompt.")] = (
        msgspec.field(default_factory=PrefillCostDocument)
    )
    decode_cost: Annotated[DecodeCostDocument, about("Decode cost", "Estimates the time of one decode step.")] = (
        DecodeCostDocument()
    )
    decode_weight: Annotated[
        float,
        about(
            "Decode weight",
            "Weight of a request's decode cost for other requests on its engine, in placements by cost; 0: ignored.",
        ),
        number("×", ge=0, le=100, usual=(0.5, 2), group="Cost"),
    ] = 1.0
    cost: Annotated[
        Literal["fixed", "fitted"],
        about(
            "Cost model",
            "fixed: the costs below. fitted: costs learned from observed requests, where they are more accurate.",
            group="Cost",
        ),
    ] = "fixed"
    # Off: with caches in DRAM, loads on demand are as fast (docs/decisions/0049-advisories-only-add.md).
    advisories: Annotated[
        AdvisoryRule,
        about(
            "Advisories",
            "off: ignores advisories. gated: reserves the cheapest engine and prefetches KV that arrives in time. "
            "symphony: reserves the least loaded engine and always prefetches.",
            group="Dispatch",
        ),
    ] = "off"
    engine_prefetch: Annotated[
        bool,
        about(
            "Prefetch into engines",
            "After an advisory, the reserved engine also loads the session's blocks from its node into free memory, "
            "which it can drop. Requires the Headway connector in vLLM.",
            group="Dispatch",
        ),
    ] = False
    bottleneck_s: Annotated[
        float,
        about(
            "Decode bottleneck timeout",
            "If an engine with full KV memory produces no first token for this long despite pending prefills, "
            "`dual_map` migrates queued requests that it expects to be late; 0: never.",
        ),
        number("s", ge=0, le=600, usual=(2, 10), group="Cost"),
    ] = 0.0
    region_rule: Annotated[
        Literal["locality_offload", "skywalker", "skywalker_ch", "region_local"],
        about(
            "Region rule",
            "Chooses which requests go to another region, where regions are connected. locality_offload: lost cache "
            "weighed against load. skywalker: only without local room, by longest match. skywalker_ch: by hash ring. "
            "region_local: none.",
            group="Dispatch",
        ),
    ] = "locality_offload"
    retry_budget: Annotated[
        float,
        about("Retry budget", "Maximum share of running requests that may be retries after an engine failure."),
        number("share", ge=0, le=1, usual=(0.1, 0.3), group="Limits"),
    ] = 0.2
    dispatch_limit: Annotated[
        DispatchLimitDocument,
        about("Dispatch limit", "Holds requests at the gateway until their engine can start them."),
    ] = DispatchLimitDocument()
    fairness: Annotated[FairnessDocument, about("Fairness", "Shares engines between waiting tenants.")] = (
        FairnessDocument()
    )
    starvation_limit_s: Annotated[
        float,
        about(
            "Starvation limit",
            "A queued request that has been overtaken for this long goes next, even if it is already late; 0: no "
            "limit.",
        ),
        number("s", ge=0, le=3600, usual=(10, 60), group="Dispatch"),
    ] = 0.0
    # vLLM's own step; with 2,048, prompts one after another slowed short answers down (decision 59).
    prefill_window_tokens: Annotated[
        int,
        about(
            "Prefill window",
            "Maximum uncached tokens in prefill on one engine at a time; about the engine's max_num_batched_tokens.",
        ),
        number("tok", ge=1, le=1_000_000, usual=(1024, 16_384), group="Dispatch"),
    ] = 8192
    lookahead_s: Annotated[
        float,
        about("Look-ahead", "Dispatches a request this long before its engine is expected to be free."),
        number("s", ge=0, le=5, usual=(0, 0.5), group="Dispatch"),
    ] = 0.05
    queue_limit: Annotated[
        int,
        about("Queue limit", "Maximum queued requests in the pool; further requests get 429."),
        number("requests", ge=1, le=1_000_000, usual=(100, 20_000), group="Limits"),
    ] = 2000
    max_wait_s: Annotated[
        float,
        about("Max wait", "Rejects a request with 429 after it has waited this long."),
        number("s", gt=0, le=3600, usual=(5, 300), group="Limits"),
    ] = 60.0
    reservation_ttl_s: Annotated[
        float,
        about("Reservation lifetime", "Releases a reservation without a report after this time."),
        number("s", gt=0, le=86_400, usual=(60, 3600), group="Limits"),
    ] = 600.0

    def fair_to_tenants(self) -> RoutingPolicy:
        """Return the policy with dispatches alternating between waiting tenants."""
        if self.fairness.enabled:
            return self
        return msgspec.structs.replace(self, fairness=msgspec.structs.replace(self.fairness, enabled=True))
