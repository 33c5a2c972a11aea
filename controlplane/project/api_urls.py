"""Addresses of the management API. The gateway's part of /api/v1 is dispatched before Django sees it."""

from __future__ import annotations

from django.urls import path, re_path, register_converter

from controlplane.access.api import api_keys, tenants
from controlplane.access.api.audit_events import AuditEvents, OneAuditEvent
from controlplane.automation.api import automation, engine_health
from controlplane.fleet.api import engines, pools, regions
from controlplane.fleet.api.sovereignty import SovereigntyRules
from controlplane.history.cache_locality import api as cache_locality
from controlplane.job_runs import api as job_runs
from controlplane.kv_nodes import api as kv_nodes
from controlplane.platform.api.openapi_document import Nothing, OpenApiDocument
from controlplane.policies.api import policies, policy_versions
from controlplane.request_log.api import decisions, recordings
from controlplane.trials.api import canaries, shadows, whatifs


class PlainId:
    """Ids of engines and keys."""

    regex = r"[A-Za-z0-9._-]{1,64}"

    def to_python(self, value: str) -> str:
        """Return the id."""
        return value

    def to_url(self, value: str) -> str:
        """Return the id."""
        return value


class RowId:
    """Ids that the database counts."""

    regex = r"[0-9]{1,18}"

    def to_python(self, value: str) -> int:
        """Return the number."""
        return int(value)

    def to_url(self, value: int) -> str:
        """Return the number's digits."""
        return str(value)


register_converter(PlainId, "plain_id")
register_converter(RowId, "row_id")

urlpatterns = [
    path("v1/regions", regions.RegionsView.as_view()),
    path("v1/regions/<slug:slug>", regions.OneRegion.as_view()),
    path("v1/sovereignty", SovereigntyRules.as_view()),
    path("v1/pools", pools.Pools.as_view()),
    path("v1/pools/<slug:slug>", pools.OnePool.as_view()),
    path("v1/pools/<slug:slug>/automation", automation.OnePoolAutomation.as_view()),
    path("v1/pools/<slug:slug>/rings", cache_locality.PoolRings.as_view()),
    path("v1/pools/<slug:slug>/cache_locality", cache_locality.PoolCacheLocalityView.as_view()),
    path("v1/pools/<slug:slug>/freeze", automation.PoolFreeze.as_view()),
    path("v1/pools/<slug:slug>/unfreeze", automation.PoolUnfreeze.as_view()),
    path("v1/pools/<slug:slug>/override", automation.PoolOverride.as_view()),
    path("v1/pools/<slug:slug>/end_override", automation.PoolOverrideEnd.as_view()),
    path("v1/pools/<slug:slug>/follow_advice", automation.PoolAdvice.as_view()),
    path("v1/pools/<slug:slug>/plans", automation.PoolPlans.as_view()),
    path("v1/pools/<slug:slug>/actions", automation.PoolActions.as_view()),
    path("v1/actions/<plain_id:key>/confirm", automation.ActionConfirmation.as_view()),
    path("v1/actions/<plain_id:key>/withdraw", automation.ActionWithdrawal.as_view()),
    path("v1/engines", engines.Engines.as_view()),
    path("v1/engines/bulk", engines.EngineBulk.as_view()),
    path("v1/engines/<plain_id:engine_id>", engines.OneEngine.as_view()),
    path("v1/engines/<plain_id:engine_id>/health", engine_health.OneEngineHealth.as_view()),
    path("v1/engines/<plain_id:engine_id>/quarantine", engine_health.EngineQuarantine.as_view()),
    path("v1/engines/<plain_id:engine_id>/trust", engine_health.EngineTrust.as_view()),
    path("v1/engines/<plain_id:engine_id>/end_verdict", engine_health.EngineVerdictEnd.as_view()),
    path("v1/engines/<plain_id:engine_id>/hits", cache_locality.OneEngineHits.as_view()),
    path("v1/engines/<plain_id:engine_id>/state", engines.EngineState.as_view()),
    path("v1/kv_nodes", kv_nodes.KvNodesView.as_view()),
    path("v1/kv_nodes/<plain_id:name>", kv_nodes.OneKvNode.as_view()),
    path("v1/kv_nodes/<plain_id:name>/unpin", kv_nodes.KvNodeUnpin.as_view()),
    path("v1/kv_moves", kv_nodes.KvMovesView.as_view()),
    path("v1/tenants", tenants.Tenants.as_view()),
    path("v1/tenants/<slug:slug>", tenants.OneTenant.as_view()),
    path("v1/keys", api_keys.ApiKeys.as_view()),
    path("v1/keys/<plain_id:key_id>", api_keys.OneApiKey.as_view()),
    path("v1/keys/<plain_id:key_id>/revoke", api_keys.ApiKeyRevocation.as_view()),
    path("v1/policies", policies.Policies.as_view()),
    path("v1/policies/schema", policies.PolicySchema.as_view()),
    path("v1/policies/validate", policies.PolicyCheck.as_view()),
    path("v1/policies/<slug:slug>", policies.OnePolicy.as_view()),
    path("v1/policies/<slug:slug>/versions", policy_versions.PolicyVersions.as_view()),
    path("v1/policies/<slug:slug>/versions/<row_id:number>", policy_versions.OnePolicyVersion.as_view()),
    path("v1/policies/<slug:slug>/versions/<row_id:number>/publish", policy_versions.PolicyPublication.as_view()),
    path("v1/policies/<slug:slug>/versions/<row_id:number>/schedule", policy_versions.VersionSchedule.as_view()),
    path("v1/policies/<slug:slug>/versions/<row_id:number>/approve", policy_versions.VersionApproval.as_view()),
    path(
        "v1/policies/<slug:slug>/versions/<row_id:number>/withdraw_approval",
        policy_versions.VersionApprovalWithdrawal.as_view(),
    ),
    path("v1/policies/<slug:slug>/roll_back", policy_versions.PolicyRollBack.as_view()),
    path("v1/jobs", job_runs.JobRuns.as_view()),
    path("v1/jobs/<row_id:run>", job_runs.OneJobRun.as_view()),
    path("v1/jobs/<row_id:run>/cancel", job_runs.JobCancellation.as_view()),
    path("v1/jobs/<row_id:run>/retry", job_runs.JobRetry.as_view()),
    path("v1/decisions", decisions.DecisionsView.as_view()),
    path("v1/decisions/<plain_id:decision_id>", decisions.OneDecision.as_view()),
    path("v1/recordings", recordings.Recordings.as_view()),
    path("v1/recordings/upload", recordings.RecordingUpload.as_view()),
    path("v1/recordings/<row_id:recording>", recordings.OneRecording.as_view()),
    path("v1/recordings/<row_id:recording>/trace", recordings.RecordingTrace.as_view()),
    path("v1/whatif", whatifs.WhatIfs.as_view()),
    path("v1/whatif/<row_id:whatif>", whatifs.OneWhatIf.as_view()),
    path("v1/shadows", shadows.Shadows.as_view()),
    path("v1/shadows/<row_id:shadow>", shadows.OneShadow.as_view()),
    path("v1/shadows/<row_id:shadow>/stop", shadows.ShadowStop.as_view()),
    path("v1/canaries", canaries.Canaries.as_view()),
    path("v1/canaries/<plain_id:canary>", canaries.OneCanary.as_view()),
    path("v1/canaries/<plain_id:canary>/step", canaries.CanaryStep.as_view()),
    path("v1/canaries/<plain_id:canary>/promote", canaries.CanaryPromotion.as_view()),
    path("v1/canaries/<plain_id:canary>/abort", canaries.CanaryAbort.as_view()),
    path("v1/audit", AuditEvents.as_view()),
    path("v1/audit/<row_id:event>", OneAuditEvent.as_view()),
    path("schema/", OpenApiDocument.as_view()),
    re_path(r"", Nothing.as_view()),
]
