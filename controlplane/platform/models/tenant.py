"""Owner of API keys; the unit of cache isolation and quotas."""

from __future__ import annotations

from django.db import models
from django.db.models import Q, UniqueConstraint
from typing_extensions import override


class Tenant(models.Model):
    """One tenant; `slug` is its id in snapshots and never changes."""

    public_id_field = "slug"
    in_snapshot = True

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    unsalted = models.BooleanField(default=False)
    """Its blocks carry no salt in pools that isolate tenants: set for the first tenant, whose caches were warm before.
    """
    served_models = models.JSONField(default=list, blank=True)
    """Served models that it may use; empty: all."""
    revision = models.PositiveIntegerField(default=1)
    """Rises with each change; the ETag of the API."""

    class Meta:
        ordering = ("slug",)
        constraints = (UniqueConstraint(fields=("unsalted",), condition=Q(unsalted=True), name="one_tenant_unsalted"),)

    @override
    def __str__(self) -> str:
        return self.slug
