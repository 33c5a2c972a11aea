"""The nouns of the control plane, one file each."""

from controlplane.access.models.console_session import ConsoleSession
from controlplane.access.models.login_allowance import LoginAllowance
from controlplane.access.models.role_grant import RoleGrant
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.automation.models.engine_order import EngineOrder
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.models.steering import Steering
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.models.sovereignty import Sovereignty
from controlplane.history.models.rollup import Rollup
from controlplane.history.models.rollup_roster import RollupRoster
from controlplane.kv_nodes.models.kv_node import KvNode, KvNodeReport
from controlplane.kv_nodes.models.kv_order import KvOrder
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.idempotency_record import IdempotencyRecord
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_approval import PolicyApproval
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.models.scheduled_publish import ScheduledPublish
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.recording import Recording
from controlplane.request_log.models.segment import Segment
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.control_slice import ControlSlice
from controlplane.trials.models.shadow import Shadow, ShadowPart
from controlplane.trials.models.whatif import WhatIf

__all__ = [
    "ApiKey",
    "AuditEvent",
    "Canary",
    "ConsoleSession",
    "ControlSlice",
    "DecisionIndex",
    "Engine",
    "EngineHealth",
    "EngineOrder",
    "IdempotencyRecord",
    "JobRun",
    "KvNode",
    "KvNodeReport",
    "KvOrder",
    "LearnedCost",
    "LoginAllowance",
    "PlanRecord",
    "Policy",
    "PolicyApproval",
    "PolicyVersion",
    "Pool",
    "Recording",
    "Region",
    "Role",
    "RoleGrant",
    "Rollup",
    "RollupRoster",
    "ScheduledPublish",
    "Segment",
    "Shadow",
    "ShadowPart",
    "SnapshotVersion",
    "Sovereignty",
    "Steering",
    "Tenant",
    "WhatIf",
]
