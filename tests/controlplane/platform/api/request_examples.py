"""One valid request per address and method, by the name of the view."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone


@dataclass(frozen=True)
class Example:
    """One request that an admin may send, with the `status` of its response."""

    method: str
    path: str
    body: Any = None
    status: int = 200
    guarded: bool = False
    """Needs If-Match."""
    media_type: str = "application/json"


_POOL = {"name": "New", "region": "here", "served_model": "m", "policy": "policy-a"}
_ENGINE = {"name": "e-new", "url": "http://10.0.9.9:8000"}
_RULES = {"default": "deny", "rules": []}
_NODE = {"name": "kv-new", "incarnation": 1, "address": "10.0.9.8:8470"}
_BULK = {"operations": [{"op": "state", "engine_id": "e-a", "state": "draining"}]}
_TOMORROW = (timezone.now() + timedelta(days=1)).isoformat()
_OVERRIDE = {"engines": 3, "until": (timezone.now() + timedelta(hours=6)).isoformat()}
_FILES = {
    "objects": [
        {
            "apiVersion": "headway/v1",
            "kind": "Engine",
            "metadata": {"pool": "pool-a", "name": "e-a"},
            "spec": {"url": "http://10.0.1.1:8000", "speed": 2.0},
        }
    ]
}
RECORDING = "the recording of this world"
_WINDOW = {"pool": "pool-a", "begins_at": "2027-01-15T08:00:00Z", "ends_at": "2027-01-15T08:00:30Z"}
_UPLOAD = "recordings/upload?pool=pool-a"
_TRACE = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}
A, V = "policies/policy-a", "policies/policy-a/versions"

SAFE: dict[str, list[str]] = {
    "RegionsView": ["regions"],
    "OneRegion": ["regions/here"],
    "ServicesView": ["services"],
    "OneService": ["services/{service}"],
    "UsageView": ["usage", "usage?group_by=day,model&month=2026-11"],
    "SavingsView": ["savings?month=2026-11", "savings?month=2026-11&pool=pool-a&tenant=acme"],
    "ObjectivesView": ["objectives"],
    "OneObjective": ["objectives/{objective}"],
    "NotificationsView": ["notifications"],
    "NotificationChannelsView": ["notification_channels"],
    "OneNotificationChannel": ["notification_channels/a"],
    "NotificationRoutesView": ["notification_routes"],
    "OneNotificationRoute": ["notification_routes/{route}"],
    "AlertRulesView": ["alert_rules"],
    "SilencesView": ["silences"],
    "OneSilence": ["silences/{silence}"],
    "BudgetsView": ["budgets"],
    "OneBudget": ["budgets/{budget}"],
    "PricesView": ["prices"],
    "OnePrice": ["prices/{price}"],
    "SovereigntyRules": ["sovereignty"],
    "CallGraphView": ["call_graph"],
    "SignInPolicyView": ["sign_in_policy"],
    "Pools": ["pools"],
    "OnePool": ["pools/pool-a"],
    "OnePoolAutomation": ["pools/pool-a/automation"],
    "PoolPlans": ["pools/pool-a/plans"],
    "PoolActions": ["pools/pool-a/actions"],
    "OneEngineHealth": ["engines/e-a/health"],
    "PoolRings": ["pools/pool-a/rings"],
    "PoolCacheLocalityView": ["pools/pool-a/cache_locality"],
    "OneEngineHits": ["engines/e-a/hits"],
    "Engines": ["engines"],
    "OneEngine": ["engines/e-a"],
    "KvNodesView": ["kv_nodes"],
    "OneKvNode": ["kv_nodes/kv-a"],
    "KvMovesView": ["kv_moves", "kv_moves?planner=prefetch&worth=useful"],
    "TenantsView": ["tenants"],
    "OneTenant": ["tenants/acme"],
    "ApiKeys": ["keys"],
    "OneApiKey": ["keys/{key}"],
    "PeopleView": ["people", "people?is_active=true&username=op"],
    "OnePerson": ["people/operator_a"],
    "GroupGrantsView": ["group_grants"],
    "OneGroupGrant": ["group_grants/{grant}"],
    "Policies": ["policies"],
    "PolicySchema": ["policies/schema"],
    "OnePolicy": [A],
    "PolicyVersions": [V],
    "OnePolicyVersion": [f"{V}/1"],
    "VersionSchedule": [f"{V}/2/schedule"],
    "ManifestsView": ["manifests", "manifests?kind=Pool&defaults=true"],
    "JobRuns": ["jobs"],
    "OneJobRun": ["jobs/{run}"],
    "AdviceProposals": ["advice/proposals", "advice/proposals?state=open"],
    "OneAdviceProposal": ["advice/proposals/{proposal}"],
    "AdvicePredictions": ["advice/predictions"],
    "IncidentsView": ["incidents"],
    "OneIncident": ["incidents/{incident}"],
    "DecisionsView": ["decisions"],
    "OneDecision": ["decisions/decision-of-pool-a"],
    "Recordings": ["recordings"],
    "OneRecording": ["recordings/{recording}"],
    "RecordingTrace": ["recordings/{recording}/trace"],
    "WhatIfs": ["whatif"],
    "OneWhatIf": ["whatif/{whatif}"],
    "Shadows": ["shadows"],
    "OneShadow": ["shadows/{shadow}"],
    "Canaries": ["canaries"],
    "OneCanary": ["canaries/{canary}"],
    "AuditEvents": ["audit"],
    "OneAuditEvent": ["audit/{event}"],
    "OpenApiDocument": ["/api/schema/"],
}

CHANGES: dict[tuple[str, str], Example] = {
    ("RegionsView", "POST"): Example("POST", "regions", {"slug": "there", "name": "There"}, 201),
    ("OneRegion", "PUT"): Example("PUT", "regions/here", {"name": "New"}, guarded=True),
    ("OneRegion", "PATCH"): Example("PATCH", "regions/here", {"name": "New"}, guarded=True),
    ("OneRegion", "DELETE"): Example("DELETE", "regions/here", None, 409, guarded=True),
    ("SavingsView", "POST"): Example("POST", "savings", {"pool": "pool-a", "day": "2026-11-12"}, 201),
    ("ObjectivesView", "POST"): Example("POST", "objectives", {"slug": "new", "pool": "pool-b"}, 201),
    ("OneObjective", "PUT"): Example("PUT", "objectives/{objective}", {"target": 99.0}, guarded=True),
    ("OneObjective", "PATCH"): Example("PATCH", "objectives/{objective}", {"target": 98.0}, guarded=True),
    ("OneObjective", "DELETE"): Example("DELETE", "objectives/{objective}", None, 204, guarded=True),
    ("NotificationChannelsView", "POST"): Example(
        "POST", "notification_channels", {"slug": "new", "name": "N", "address_env": "HEADWAY_NOTIFY_MAIN"}, 201
    ),
    ("OneNotificationChannel", "PUT"): Example(
        "PUT", "notification_channels/a", {"name": "N", "address_env": "HEADWAY_NOTIFY_MAIN"}, guarded=True
    ),
    ("OneNotificationChannel", "PATCH"): Example("PATCH", "notification_channels/a", {"name": "N"}, guarded=True),
    ("OneNotificationChannel", "DELETE"): Example("DELETE", "notification_channels/a", None, 409, guarded=True),
    ("NotificationChannelTest", "POST"): Example("POST", "notification_channels/a/test", {}),
    ("NotificationRoutesView", "POST"): Example(
        "POST", "notification_routes", {"slug": "new", "channel": "a", "events": ["opened"]}, 201
    ),
    ("OneNotificationRoute", "PUT"): Example(
        "PUT", "notification_routes/{route}", {"channel": "b", "events": ["closed"]}, guarded=True
    ),
    ("OneNotificationRoute", "PATCH"): Example("PATCH", "notification_routes/{route}", {"repeat_min": 5}, guarded=True),
    ("OneNotificationRoute", "DELETE"): Example("DELETE", "notification_routes/{route}", None, 204, guarded=True),
    ("SilencesView", "POST"): Example(
        "POST", "silences", {"slug": "new", "until": "2030-01-01T00:00:00Z", "reason": "r"}, 201
    ),
    ("OneSilence", "PUT"): Example(
        "PUT", "silences/{silence}", {"until": "2030-01-01T00:00:00Z", "reason": "r"}, guarded=True
    ),
    ("OneSilence", "PATCH"): Example("PATCH", "silences/{silence}", {"reason": "r"}, guarded=True),
    ("OneSilence", "DELETE"): Example("DELETE", "silences/{silence}", None, 204, guarded=True),
    ("BudgetsView", "POST"): Example("POST", "budgets", {"slug": "new", "tenant": "acme", "amount": 5}, 201),
    ("OneBudget", "PUT"): Example("PUT", "budgets/{budget}", {"amount": 7}, guarded=True),
    ("OneBudget", "PATCH"): Example("PATCH", "budgets/{budget}", {"mode": "hard"}, guarded=True),
    ("OneBudget", "DELETE"): Example("DELETE", "budgets/{budget}", None, 204, guarded=True),
    ("PricesView", "POST"): Example("POST", "prices", {"slug": "new", "model": "m-new"}, 201),
    ("OnePrice", "PUT"): Example("PUT", "prices/{price}", {"prompt": 0.5}, guarded=True),
    ("OnePrice", "PATCH"): Example("PATCH", "prices/{price}", {"output": 2.0}, guarded=True),
    ("OnePrice", "DELETE"): Example("DELETE", "prices/{price}", None, 204, guarded=True),
    ("ServicesView", "POST"): Example("POST", "services", {"slug": "new", "pools": ["pool-a"]}, 201),
    ("OneService", "PUT"): Example("PUT", "services/{service}", {"pools": ["pool-b"]}, guarded=True),
    ("OneService", "PATCH"): Example("PATCH", "services/{service}", {"aliases": ["other"]}, guarded=True),
    ("OneService", "DELETE"): Example("DELETE", "services/{service}", None, 204, guarded=True),
    ("SignInPolicyView", "PUT"): Example("PUT", "sign_in_policy", {"second_factor": "admins"}, guarded=True),
    ("SignInPolicyView", "PATCH"): Example("PATCH", "sign_in_policy", {"second_factor": "off"}, guarded=True),
    ("CallGraphView", "PUT"): Example("PUT", "call_graph", {"agents": {"planner": []}}, guarded=True),
    ("CallGraphView", "PATCH"): Example("PATCH", "call_graph", {"agents": {}}, guarded=True),
    ("SovereigntyRules", "PUT"): Example("PUT", "sovereignty", _RULES, guarded=True),
    ("SovereigntyRules", "PATCH"): Example("PATCH", "sovereignty", {"default": "deny"}, guarded=True),
    ("Pools", "POST"): Example("POST", "pools", {"slug": "new", **_POOL}, 201),
    ("OnePool", "PUT"): Example("PUT", "pools/pool-a", _POOL, guarded=True),
    ("OnePool", "PATCH"): Example("PATCH", "pools/pool-a", {"isolated": True}, guarded=True),
    ("OnePool", "DELETE"): Example("DELETE", "pools/pool-a", None, 409, guarded=True),
    ("PoolFreeze", "POST"): Example("POST", "pools/pool-a/freeze", {}),
    ("PoolUnfreeze", "POST"): Example("POST", "pools/pool-a/unfreeze", {}),
    ("PoolOverride", "POST"): Example("POST", "pools/pool-a/override", _OVERRIDE),
    ("PoolOverrideEnd", "POST"): Example("POST", "pools/pool-a/end_override", {}),
    ("PoolAdvice", "POST"): Example("POST", "pools/pool-a/follow_advice", {"job": "scaling", "advice": "+mixed"}, 409),
    ("EngineQuarantine", "POST"): Example("POST", "engines/e-a/quarantine", {}),
    ("EngineTrust", "POST"): Example("POST", "engines/e-a/trust", {}, 409),
    ("EngineVerdictEnd", "POST"): Example("POST", "engines/e-a/end_verdict", {}, 409),
    ("ActionConfirmation", "POST"): Example("POST", "actions/action-a/confirm", {}),
    ("ActionWithdrawal", "POST"): Example("POST", "actions/action-a/withdraw", {}),
    ("Engines", "POST"): Example("POST", "engines", {"pool": "pool-a", **_ENGINE}, 201),
    ("OneEngine", "PUT"): Example("PUT", "engines/e-a", _ENGINE, guarded=True),
    ("OneEngine", "PATCH"): Example("PATCH", "engines/e-a", {"speed": 2.0}, guarded=True),
    ("OneEngine", "DELETE"): Example("DELETE", "engines/e-a", None, 409, guarded=True),
    ("EngineState", "POST"): Example("POST", "engines/e-a/state", {"state": "draining"}),
    ("EngineBulk", "POST"): Example("POST", "engines/bulk", _BULK),
    ("KvNodesView", "POST"): Example("POST", "kv_nodes", _NODE),
    ("KvNodeRulesView", "POST"): Example("POST", "kv_nodes/kv-a/rules", {"eviction": "rlt"}),
    ("PoolKvCopies", "POST"): Example("POST", "pools/pool-a/kv_copies", {"prefix": "0" * 16, "copies": 2}),
    # It has no such pin.
    ("KvNodeUnpin", "POST"): Example("POST", "kv_nodes/kv-a/unpin", {"name": "0" * 16, "tenant": "acme"}, 409),
    # It serves.
    ("OneKvNode", "DELETE"): Example("DELETE", "kv_nodes/kv-a", None, 409, guarded=True),
    ("TenantsView", "POST"): Example("POST", "tenants", {"slug": "new", "name": "New"}, 201),
    ("OneTenant", "PUT"): Example("PUT", "tenants/acme", {"name": "New"}, guarded=True),
    ("OneTenant", "PATCH"): Example("PATCH", "tenants/acme", {"name": "New"}, guarded=True),
    ("OneTenant", "DELETE"): Example("DELETE", "tenants/acme", None, 409, guarded=True),
    ("ApiKeys", "POST"): Example("POST", "keys", {"tenant": "acme", "name": "ci"}, 201),
    ("OneApiKey", "PUT"): Example("PUT", "keys/{key}", {"name": "New"}, guarded=True),
    ("OneApiKey", "PATCH"): Example("PATCH", "keys/{key}", {"rate_per_min": 60}, guarded=True),
    ("ApiKeyRevocation", "POST"): Example("POST", "keys/{key}/revoke", {}),
    ("ApiKeyRotation", "POST"): Example("POST", "keys/{key}/rotate", {"overlap_h": 1}),
    # It has not been rotated.
    ("ApiKeyPreviousEnd", "POST"): Example("POST", "keys/{key}/end_previous", {}),
    ("PeopleView", "POST"): Example("POST", "people", {"username": "new", "roles": ["pool-a=viewer"]}, 201),
    ("OnePerson", "PUT"): Example("PUT", "people/nobody", {"roles": ["*=viewer"]}, guarded=True),
    ("OnePerson", "PATCH"): Example("PATCH", "people/viewer", {"is_active": False}, guarded=True),
    ("GroupGrantsView", "POST"): Example("POST", "group_grants", {"group": "new", "role": "viewer"}, 201),
    ("OneGroupGrant", "PUT"): Example("PUT", "group_grants/{grant}", {"role": "viewer"}, guarded=True),
    ("OneGroupGrant", "PATCH"): Example("PATCH", "group_grants/{grant}", {"role": "viewer"}, guarded=True),
    ("OneGroupGrant", "DELETE"): Example("DELETE", "group_grants/{grant}", None, 204, guarded=True),
    ("Policies", "POST"): Example("POST", "policies", {"slug": "new", "name": "New"}, 201),
    ("PolicyCheck", "POST"): Example("POST", "policies/validate", {"document": {}}),
    ("OnePolicy", "PUT"): Example("PUT", A, {"name": "New"}, guarded=True),
    ("OnePolicy", "PATCH"): Example("PATCH", A, {"name": "New"}, guarded=True),
    ("OnePolicy", "DELETE"): Example("DELETE", A, None, 409, guarded=True),
    ("PolicyVersions", "POST"): Example("POST", V, {"document": {"ttft_slo_s": 3.0}, "message": "x"}, 201),
    ("PolicyPublication", "POST"): Example("POST", f"{V}/2/publish", {"instead_of": 1}),
    ("VersionApproval", "POST"): Example("POST", f"{V}/2/approve", {"why": "looks right"}),
    ("VersionApprovalWithdrawal", "POST"): Example("POST", f"{V}/2/withdraw_approval", {}, 409),
    ("OnePolicyVersion", "DELETE"): Example("DELETE", f"{V}/1", None, 409),
    ("VersionSchedule", "POST"): Example("POST", f"{V}/2/schedule", {"at": _TOMORROW, "instead_of": 1}, 409),
    ("VersionSchedule", "DELETE"): Example("DELETE", f"{V}/2/schedule", None, 200, guarded=True),
    ("PolicyRollBack", "POST"): Example("POST", f"{A}/roll_back", {"number": 2, "instead_of": 1}, 201),
    ("ManifestDiff", "POST"): Example("POST", "manifests/diff", _FILES),
    ("ManifestApply", "POST"): Example("POST", "manifests/apply", _FILES),
    ("JobCancellation", "POST"): Example("POST", "jobs/{run}/cancel", {}, 409),
    ("JobRetry", "POST"): Example("POST", "jobs/{run}/retry", {}, 201),
    # A shadow and a canary run in the world already.
    ("AdviceShadow", "POST"): Example("POST", "advice/proposals/{proposal}/shadow", {}, 409),
    ("AdviceCanary", "POST"): Example("POST", "advice/proposals/{proposal}/canary", {}, 409),
    ("AdviceRejection", "POST"): Example("POST", "advice/proposals/{proposal}/reject", {"why": "A rare night."}),
    ("AdviceSearch", "POST"): Example("POST", "advice/search", {"pool": "pool-a"}, 201),
    ("AdviceStop", "POST"): Example("POST", "advice/stop", {}),
    ("IncidentAcknowledgement", "POST"): Example("POST", "incidents/{incident}/acknowledge", {}),
    ("IncidentClosure", "POST"): Example("POST", "incidents/{incident}/close", {}),
    ("IncidentNotes", "POST"): Example("POST", "incidents/{incident}/notes", {"text": "Seen."}),
    ("Recordings", "POST"): Example("POST", "recordings", _WINDOW, 201),
    ("RecordingUpload", "POST"): Example("POST", _UPLOAD, _TRACE, 201, media_type="application/x-ndjson"),
    ("OneRecording", "DELETE"): Example("DELETE", "recordings/{recording}", None, 204, guarded=True),
    ("Shadows", "POST"): Example("POST", "shadows", {"pool": "pool-a", "draft": 2}, 409),
    ("ShadowStop", "POST"): Example("POST", "shadows/{shadow}/stop", {}),
    ("WhatIfs", "POST"): Example("POST", "whatif", {"recording": RECORDING, "draft": 2}, 201),
    # One runs in the world already.
    ("Canaries", "POST"): Example("POST", "canaries", {"policy": "policy-a", "version": 3}, 409),
    ("CanaryStep", "POST"): Example("POST", "canaries/{canary}/step", {"force": True, "why": "urgent"}),
    ("CanaryPromotion", "POST"): Example("POST", "canaries/{canary}/promote", {"force": True, "why": "urgent"}),
    ("CanaryAbort", "POST"): Example("POST", "canaries/{canary}/abort", {"why": "late"}),
}
