"""The planning half of a policy: which automations steer a pool, how far they may go, and with which settings.

Every field carries a title, its range and a sentence, as in routing.policy.policy_document: the same types
are the schema of the console's form, of the API, of the simulator and of the jobs.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from planning.documents.health_document import HealthDocument
from planning.documents.holdback_document import SliceDocument
from planning.documents.ratio_document import RatioDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument
from routing.policy.schema_versions import SchemaLine

SCHEMA_VERSION = 1
AUTOMATION_SCHEMA = SchemaLine("automation policies", SCHEMA_VERSION)


class AutomationPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one pool steers itself."""

    schema_version: Annotated[
        int, Meta(ge=1, le=SCHEMA_VERSION, title="Schema", description="Which form of this document it follows.")
    ] = SCHEMA_VERSION
    health: Annotated[
        HealthDocument,
        Meta(title="Engine health", description="Takes sick engines out and lets them come back slowly."),
    ] = HealthDocument()
    rebalance: Annotated[
        RebalanceDocument,
        Meta(title="Rebalancing", description="Gives hot prefixes more engines and moves tickets off hot engines."),
    ] = RebalanceDocument()
    scaling: Annotated[
        ScalingDocument,
        Meta(title="Scaling", description="Adds engines when objectives are missed and drains them in calm times."),
    ] = ScalingDocument()
    ratio: Annotated[
        RatioDocument,
        Meta(title="Prefill/decode ratio", description="Lets engines change roles as the load shifts between them."),
    ] = RatioDocument()
    control_slice: Annotated[
        SliceDocument,
        Meta(
            title="Control slice",
            description="Keeps a simple rule on a small share of the sessions and falls back to it while the policy "
            "loses.",
        ),
    ] = SliceDocument()


def contradictions(policy: AutomationPolicy) -> list[str]:
    """Return what no single field can see, one sentence with its path each; empty where the document can run."""
    found = []
    if policy.scaling.min_engines > policy.scaling.max_engines:
        found.append("engines at least is above engines at most - at `$.scaling.min_engines`")
    if policy.rebalance.cv_low > policy.rebalance.cv_high:
        found.append("even below is above uneven above - at `$.rebalance.cv_low`")
    if policy.health.ejection_s > policy.health.ejection_max_s:
        found.append("quarantine is longer than the longest quarantine - at `$.health.ejection_s`")
    if policy.scaling.budget_cost and not policy.scaling.engine_h_cost:
        found.append("a daily cost needs the price of an engine hour - at `$.scaling.engine_h_cost`")
    return found
