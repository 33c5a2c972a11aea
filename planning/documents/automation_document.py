"""The planning half of a policy: the automations that control a pool, with limits and settings.

Every field has a title, a range, and a description, as in routing.policy.policy_document. The same types are the schema
of the console's form, the API, the simulator, and the jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from planning.documents.health_document import HealthDocument
from planning.documents.holdback_document import SliceDocument
from planning.documents.ratio_document import RatioDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument
from routing.policy.removed_settings import removed_notes, without_removed
from routing.policy.schema_versions import SchemaLine
from routing.policy.setting import about, number

SCHEMA_VERSION = 2
REMOVED: dict[str, Any] = {
    "health.stale_s": HealthDocument.stale_s,
    "health.silent_s": HealthDocument.silent_s,
    "health.slow_factor": HealthDocument.slow_factor,
    "health.slow_samples": HealthDocument.slow_samples,
    "health.slow_s": HealthDocument.slow_s,
    "health.flaps": HealthDocument.flaps,
    "health.flap_window_s": HealthDocument.flap_window_s,
    "health.slow_start_from": HealthDocument.slow_start_from,
    "rebalance.hot_factor": RebalanceDocument.hot_factor,
    "rebalance.hot_work_s": RebalanceDocument.hot_work_s,
    "rebalance.prefix_share": RebalanceDocument.prefix_share,
    "rebalance.d_max": RebalanceDocument.d_max,
    "rebalance.max_widened": RebalanceDocument.max_widened,
    "rebalance.recomputed_share": RebalanceDocument.recomputed_share,
    "rebalance.max_moves": RebalanceDocument.max_moves,
    "scaling.min_requests": ScalingDocument.min_requests,
    "scaling.hysteresis": ScalingDocument.hysteresis,
    "ratio.min_samples": RatioDocument.min_samples,
    "ratio.hysteresis": RatioDocument.hysteresis,
    "ratio.max_step": RatioDocument.max_step,
    "holdback.probe_share": SliceDocument.probe_share,
    "holdback.probe_s": SliceDocument.probe_s,
}
"""Settings of schema 1 that are constants of their documents."""


def _upgraded(document: dict[str, Any]) -> dict[str, Any]:
    return without_removed(document, REMOVED)


def _upgrade_notes(document: Mapping[str, Any]) -> list[str]:
    return list(removed_notes(document, REMOVED, "automation."))


AUTOMATION_SCHEMA = SchemaLine("automation policies", SCHEMA_VERSION, _upgraded, _upgrade_notes)


class AutomationPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Automations of one pool."""

    schema_version: Annotated[
        int, about("Schema", "Schema version of this document."), number(ge=1, le=SCHEMA_VERSION)
    ] = SCHEMA_VERSION
    health: Annotated[
        HealthDocument, about("Engine health", "Quarantines unhealthy engines and returns them with slow start.")
    ] = HealthDocument()
    rebalance: Annotated[
        RebalanceDocument,
        about("Rebalancing", "Gives hot prefixes more engines and moves queued requests off hot engines."),
    ] = RebalanceDocument()
    scaling: Annotated[
        ScalingDocument, about("Scaling", "Adds engines when objectives are missed and drains them at low load.")
    ] = ScalingDocument()
    ratio: Annotated[
        RatioDocument, about("Prefill/decode ratio", "Changes engine roles as load shifts between prefill and decode.")
    ] = RatioDocument()
    holdback: Annotated[
        SliceDocument,
        about(
            "Holdback", "Keeps a small share of sessions on a simple rule, and falls back to it while the policy loses."
        ),
    ] = SliceDocument()


def contradictions(policy: AutomationPolicy) -> list[str]:
    """Return contradictions between fields, one sentence with its path each, empty if there are none."""
    problems = []
    if policy.scaling.min_engines > policy.scaling.max_engines:
        problems.append("min engines is above max engines - at `$.scaling.min_engines`")
    if policy.rebalance.cv_low > policy.rebalance.cv_high:
        problems.append("even below exceeds uneven above - at `$.rebalance.cv_low`")
    if policy.health.ejection_s > policy.health.ejection_max_s:
        problems.append("quarantine is longer than max quarantine - at `$.health.ejection_s`")
    if policy.scaling.budget_cost and not policy.scaling.engine_h_cost:
        problems.append("a cost per day needs a price per engine hour - at `$.scaling.engine_h_cost`")
    return problems
