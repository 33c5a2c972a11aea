"""An owner of API keys; the unit of cache isolation and quotas."""

from __future__ import annotations

from django.db import models
from django.db.models import Q, UniqueConstraint

from controlplane.platform.resource.declared_field import FieldAccess, TextList, declared
from controlplane.platform.revisions import RevisedModel


class Tenant(RevisedModel):
    """An owner of API keys. `slug` is its id in snapshots and never changes."""

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

    class Meta:
        ordering = ("slug",)
        constraints = (UniqueConstraint(fields=("unsalted",), condition=Q(unsalted=True), name="one_tenant_unsalted"),)
