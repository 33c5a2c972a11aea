"""Counter for the versions of published snapshots."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class SnapshotVersion(models.Model):
    """The only row. Each change of topology, policies, or API keys increments its version in the same transaction."""

    ONLY = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY)
    version = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="snapshot_version_one_row"),)

    @override
    def __str__(self) -> str:
        return str(self.version)
