"""A location with engines. One network distance applies within it."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class Region(models.Model):
    """One region. `slug` is its id everywhere outside this database and never changes."""

    public_id_field = "slug"

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change; used as ETag of the API."""

    class Meta:
        ordering = ("slug",)

    @override
    def __str__(self) -> str:
        return self.slug
