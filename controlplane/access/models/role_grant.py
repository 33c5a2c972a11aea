"""Roles of people, by pool."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.platform.role import Role


class RoleGrant(models.Model):
    """One role of one person, in one pool or, without a pool, in all pools."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="role_grants")
    role = models.CharField(max_length=16, choices=Role.choices)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, null=True, blank=True, related_name="role_grants")

    class Meta:
        ordering = ("user", "pool__slug")
        constraints = (
            models.UniqueConstraint(fields=("user", "pool"), name="role_once_per_pool"),
            # SQL counts NULLs as distinct, so the constraint above allows a second role without a pool.
            models.UniqueConstraint(fields=("user",), condition=models.Q(pool=None), name="role_once_everywhere"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="role_known"),
            models.CheckConstraint(
                condition=~models.Q(role=Role.ADMIN) | models.Q(pool=None), name="admin_is_everywhere"
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.user} {self.role} in {self.pool or 'all pools'}"
