"""An owner of API keys; the unit of cache isolation and quotas."""

from __future__ import annotations

from django.db import models
from django.db.models import Q, UniqueConstraint
from typing_extensions import override


class Tenant(models.Model):
    """One tenant. `slug` is its id in snapshots and never changes."""

    public_id_field = "slug"
    in_snapshot = True

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    unsalted = models.BooleanField(default=False)
    """Whether its blocks carry no salt in pools that isolate tenants. Set for the first tenant, to keep its caches
    warm.
    """
    served_models = models.JSONField(default=list, blank=True)
    """Served models that the tenant may use; empty: all."""
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change; used as ETag of the API."""

    class Meta:
        ordering = ("slug",)
        constraints = (UniqueConstraint(fields=("unsalted",), condition=Q(unsalted=True), name="one_tenant_unsalted"),)

    @override
    def __str__(self) -> str:
        return self.slug
