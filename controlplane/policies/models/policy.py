"""A named policy: a sequence of versions, one of which may be live."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class Policy(models.Model):
    """One policy. Pools refer to it and follow its live version."""

    public_id_field = "slug"

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    live_version = models.ForeignKey(
        "controlplane.PolicyVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    needs_approval = models.BooleanField(default=False)
    """Whether a version goes live only after approval by a person other than its author. Rollbacks need no approval."""
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change of the name, approval rule, or live version; used as ETag of the API."""

    class Meta:
        ordering = ("slug",)

    @override
    def __str__(self) -> str:
        return self.slug
