"""A location with engines. One network distance applies within it."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.platform.resource.declared_field import FieldAccess, declared


class Region(models.Model):
    """One region. `slug` is its id everywhere outside this database and never changes."""

    public_id_field = "slug"

    slug = declared(
        models.SlugField(max_length=64, unique=True), "ID", "Its id; never changes.", access=FieldAccess.FIXED
    )
    name = declared(models.CharField(max_length=120), "Name")
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change; used as ETag of the API."""

    class Meta:
        ordering = ("slug",)

    @override
    def __str__(self) -> str:
        return self.slug
