"""An owner of API keys; the unit of cache isolation and quotas."""

from __future__ import annotations

from django.db import models
from django.db.models import Q, UniqueConstraint
from typing_extensions import override

from controlplane.platform.resource.declared_field import FieldAccess, TextList, declared


class Tenant(models.Model):
    """One tenant. `slug` is its id in snapshots and never changes."""

    public_id_field = "slug"
    in_snapshot = True

    slug = declared(
        models.SlugField(max_length=64, unique=True),
        "Id",
        "Lowercase letters, digits, - and _. Cannot be changed later.",
        access=FieldAccess.FIXED,
    )
    name = declared(models.CharField(max_length=120), "Name")
    unsalted = models.BooleanField(default=False)
    """Whether its blocks carry no salt in pools that isolate tenants. Set for the first tenant, to keep its caches
    warm.
    """
    served_models = declared(
        models.JSONField(default=list, blank=True),
        "Models",
        "Served models that its keys may use; empty: all.",
        kept=True,
        items=TextList(most=100),
    )
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change; used as ETag of the API."""

    class Meta:
        ordering = ("slug",)
        constraints = (UniqueConstraint(fields=("unsalted",), condition=Q(unsalted=True), name="one_tenant_unsalted"),)

    @override
    def __str__(self) -> str:
        return self.slug
