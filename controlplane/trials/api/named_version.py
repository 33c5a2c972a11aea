"""Finds the policy version that a request body names."""

from __future__ import annotations

from controlplane.platform.field_problems import problem
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion


def version_of(policy: Policy, name: str, number: int) -> PolicyVersion:
    """Return the version named by the member `name` of a body. Raises InvalidFieldsError."""
    version = policy.versions.filter(number=number).first()
    if version is None:
        raise problem(name, f"{policy.slug} has no v{number}.")
    return version
