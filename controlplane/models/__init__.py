"""The nouns of the control plane, one file each."""

from controlplane.models.api_key import ApiKey
from controlplane.models.audit_event import AuditEvent
from controlplane.models.canary import Canary
from controlplane.models.console_session import ConsoleSession
from controlplane.models.control_slice import ControlSlice
from controlplane.models.decision_index import DecisionIndex
from controlplane.models.engine import Engine
from controlplane.models.engine_health import EngineHealth
from controlplane.models.engine_order import EngineOrder
from controlplane.models.idempotency_record import IdempotencyRecord
from controlplane.models.job_run import JobRun
from controlplane.models.learned_cost import LearnedCost
from controlplane.models.login_allowance import LoginAllowance
from controlplane.models.plan_record import PlanRecord
from controlplane.models.policy import Policy
from controlplane.models.policy_approval import PolicyApproval
from controlplane.models.policy_version import PolicyVersion
from controlplane.models.pool import Pool
from controlplane.models.recording import Recording
from controlplane.models.region import Region
from controlplane.models.role_grant import Role, RoleGrant
from controlplane.models.rollup import Rollup
from controlplane.models.rollup_roster import RollupRoster
from controlplane.models.scheduled_publish import ScheduledPublish
from controlplane.models.shadow import Shadow, ShadowPart
from controlplane.models.snapshot_version import SnapshotVersion
from controlplane.models.steering import Steering
from controlplane.models.tenant import Tenant
from controlplane.models.whatif import WhatIf

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
    "Shadow",
    "ShadowPart",
    "SnapshotVersion",
    "Steering",
    "Tenant",
    "WhatIf",
]
