"""A named policy: a sequence of versions, one of which may be live."""

from __future__ import annotations

from django.db import models

from controlplane.platform.resource.declared_field import FieldAccess, declared
from controlplane.platform.revisions import RevisedModel


class Policy(RevisedModel):
    """One policy. Pools refer to it and follow its live version."""

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

    class Meta:
        ordering = ("slug",)
