"""A location with engines. One network distance applies within it."""

from __future__ import annotations

from django.db import models

from controlplane.platform.resource.declared_field import FieldAccess, declared
from controlplane.platform.revisions import RevisedModel


class Region(RevisedModel):
    """A location with engines. `slug` is its id everywhere outside this database and never changes."""

    slug = declared(
        models.SlugField(max_length=64, unique=True), "ID", "Its id; never changes.", access=FieldAccess.FIXED
    )
    name = declared(models.CharField(max_length=120), "Name")

    class Meta:
        ordering = ("slug",)
