"""A named policy: a line of versions, one of which may be live."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class Policy(models.Model):
    """One policy; pools refer to it, and follow its live version."""

    public_id_field = "slug"

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    live_version = models.ForeignKey(
        "controlplane.PolicyVersion", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    needs_approval = models.BooleanField(default=False)
    """A version goes live only once another person than its author has approved it; rolling back needs no approval."""
    revision = models.PositiveIntegerField(default=1)
    """Rises with each change of the name, of the approval rule or of the live version; the ETag of the API."""

    class Meta:
        ordering = ("slug",)

    @override
    def __str__(self) -> str:
        return self.slug
