"""Roles that the sign-in provider's groups give, by pool."""

from __future__ import annotations

import uuid_utils
from django.db import models
from typing_extensions import override

from controlplane.platform.resource.declared_field import FieldAccess, declared
from controlplane.platform.revisions import RevisedModel
from controlplane.platform.role import ALL_POOLS, Role

MAX_GROUP = 120


def new_grant_id() -> str:
    """Return a public id of a grant."""
    return f"grant-{uuid_utils.uuid7().hex}"


class GroupGrant(RevisedModel):
    """One role of everyone in a group, in one pool or in all pools."""

    public_id_field = "grant_id"

    grant_id = models.CharField(max_length=64, unique=True, default=new_grant_id)
    group = declared(
        models.CharField(max_length=MAX_GROUP),
        "Group",
        "As the provider's claim names it, for example headway-operators or an object id.",
        access=FieldAccess.FIXED,
    )
    pool = declared(
        models.CharField(max_length=64, default=ALL_POOLS),
        "Pool",
        "Id of the pool to which the role applies; *: all pools.",
        access=FieldAccess.FIXED,
    )
    role = declared(models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER), "Role")

    class Meta:
        ordering = ("group", "pool")
        constraints = (models.UniqueConstraint(fields=("group", "pool"), name="group_role_once_per_pool"),)

    @override
    def __str__(self) -> str:
        return f"{self.role} of {self.group} in {self.pool}"
