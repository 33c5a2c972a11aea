"""A named policy: a sequence of versions, one of which may be live."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.platform.resource.declared_field import FieldAccess, declared


class Policy(models.Model):
    """One policy. Pools refer to it and follow its live version."""

    public_id_field = "slug"

    slug = declared(
        models.SlugField(max_length=64, unique=True), "ID", "Its id; never changes.", access=FieldAccess.FIXED
    )
    name = declared(models.CharField(max_length=120), "Name")
    live_version = models.ForeignKey(
        "controlplane.PolicyVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    needs_approval = declared(
        models.BooleanField(default=False),
        "Requires approval",
        "Versions go live only with another person's approval; only admins turn it off. A rollback needs none.",
    )
    highest_deleted = declared(
        models.PositiveIntegerField(default=0), "Highest deleted draft", access=FieldAccess.HIDDEN
    )
    """Highest number of a deleted draft; no later version gets a number that audit events already name."""
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change of the name, approval rule, or live version; used as ETag of the API."""

    class Meta:
        ordering = ("slug",)

    @override
    def __str__(self) -> str:
        return self.slug
