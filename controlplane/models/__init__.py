"""The nouns of the control plane, one file each."""

from controlplane.models.api_key import ApiKey
from controlplane.models.audit_event import AuditEvent
from controlplane.models.console_session import ConsoleSession
from controlplane.models.engine import Engine
from controlplane.models.idempotency_record import IdempotencyRecord
from controlplane.models.job_run import JobRun
from controlplane.models.learned_cost import LearnedCost
from controlplane.models.policy import Policy
from controlplane.models.policy_version import PolicyVersion
from controlplane.models.pool import Pool
from controlplane.models.region import Region
from controlplane.models.role_grant import Role, RoleGrant
from controlplane.models.rollup import Rollup
from controlplane.models.rollup_roster import RollupRoster
from controlplane.models.snapshot_version import SnapshotVersion
from controlplane.models.tenant import Tenant

__all__ = [
    "ApiKey",
    "AuditEvent",
    "ConsoleSession",
    "Engine",
    "IdempotencyRecord",
    "JobRun",
    "LearnedCost",
    "Policy",
    "PolicyVersion",
    "Pool",
    "Region",
    "Role",
    "RoleGrant",
    "Rollup",
    "RollupRoster",
    "SnapshotVersion",
    "Tenant",
]
