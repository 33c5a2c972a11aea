"""The fields of one object that a field manager applied last."""

from __future__ import annotations

from typing import Any

from django.db import models
from typing_extensions import override

from controlplane.policies.document.schema import Path


class AppliedManifest(models.Model):
    """What one manager (a set of files) applied last to one object. It manages these fields."""

    manager = models.CharField(max_length=64)
    kind = models.CharField(max_length=32)
    """Kind of the object, as in files."""
    object_id = models.CharField(max_length=128)
    """Public id of the object; it stays when a person renames the object."""
    name = models.CharField(max_length=200)
    """Name of the object in the files."""
    fields = models.JSONField()
    """Pairs of path and value, as stored after the change."""
    source = models.CharField(max_length=200, blank=True)
    """File and line of the object, as the client named them."""
    by = models.CharField(max_length=150)
    """Name of the key or person that applied it."""
    applied_at = models.DateTimeField()

    class Meta:
        ordering = ("manager", "kind", "name")
        constraints = (
            models.UniqueConstraint(fields=("manager", "kind", "object_id"), name="manifest_once_per_manager"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.manager}: {self.kind} {self.name}"

    @property
    def managed_by(self) -> str:
        """Return the manager, who applied, and from where, in words."""
        return f"{self.manager} ({', '.join(filter(None, (self.by, self.source)))})"

    @property
    def values(self) -> dict[Path, Any]:
        """Return the managed fields by path."""
        return {tuple(path): value for path, value in self.fields}

    @staticmethod
    def stored(values: dict[Path, Any]) -> list[Any]:
        """Return the fields in their stored form."""
        return [[list(path), value] for path, value in sorted(values.items())]
