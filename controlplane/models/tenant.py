"""Whoever owns API keys; the unit of cache isolation and quotas."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class Tenant(models.Model):
    """One tenant; `slug` is its id in snapshots and never changes."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    revision = models.PositiveIntegerField(default=1)
    """Rises with each change; the ETag of the API."""

    class Meta:
        ordering = ("slug",)

    @override
    def __str__(self) -> str:
        return self.slug
