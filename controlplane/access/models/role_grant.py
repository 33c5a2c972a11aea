"""Roles of people, by pool."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.access.models.group_grant import MAX_GROUP
from controlplane.fleet.models.pool import Pool
from controlplane.platform.role import Role

_BY_ADMIN = models.Q(by_group="")


class RoleGrant(models.Model):
    """One role of one person, in one pool or, without a pool, in all pools. The highest role in a pool applies."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="role_grants")
    role = models.CharField(max_length=16, choices=Role.choices)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, null=True, blank=True, related_name="role_grants")
    by_group = models.CharField(max_length=MAX_GROUP, blank=True, default="")
    """Group of the sign-in provider that gives the role; empty: an admin gave it."""

    class Meta:
        ordering = ("user", "pool__slug")
        constraints = (
            models.UniqueConstraint(fields=("user", "pool"), condition=_BY_ADMIN, name="role_once_per_pool"),
            models.UniqueConstraint(fields=("user", "pool"), condition=~_BY_ADMIN, name="role_of_groups_once_per_pool"),
            # SQL counts NULLs as distinct, so the constraints above allow a second role without a pool.
            models.UniqueConstraint(
                fields=("user",), condition=_BY_ADMIN & models.Q(pool=None), name="role_once_everywhere"
            ),
            models.UniqueConstraint(
                fields=("user",), condition=~_BY_ADMIN & models.Q(pool=None), name="role_of_groups_once_everywhere"
            ),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="role_known"),
            models.CheckConstraint(
                condition=~models.Q(role=Role.ADMIN) | models.Q(pool=None), name="admin_is_everywhere"
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.user} {self.role} in {self.pool or 'all pools'}"
