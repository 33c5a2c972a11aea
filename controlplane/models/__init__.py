"""The nouns of the control plane, one file each."""

from controlplane.models.api_key import ApiKey
from controlplane.models.engine import Engine
from controlplane.models.job_run import JobRun
from controlplane.models.policy import Policy
from controlplane.models.policy_version import PolicyVersion
from controlplane.models.pool import Pool
from controlplane.models.region import Region
from controlplane.models.snapshot_version import SnapshotVersion
from controlplane.models.tenant import Tenant

__all__ = [
    "ApiKey",
    "Engine",
    "JobRun",
    "Policy",
    "PolicyVersion",
    "Pool",
    "Region",
    "SnapshotVersion",
    "Tenant",
]
