"""Policies as resources. Their documents are versions, with services of their own."""

from __future__ import annotations

from controlplane.platform.resource.resource import Resource
from controlplane.policies import publish
from controlplane.policies.models.policy import Policy
from controlplane.policies.reading import visible_policies

POLICIES = Resource(
    "policies",
    Policy,
    visible_policies,
    created=publish.create_policy,
    changed=publish.change_policy,
    deleted=publish.delete_policy,
)
