"""An operator's limits on a pool's automations at this moment, whatever its policy says."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool


class PoolAutomation(models.Model):
    """A pool's switches; they act at once. A pool without a row is neither frozen nor overridden."""

    pool = models.OneToOneField(Pool, on_delete=models.CASCADE, related_name="automation", primary_key=True)
    frozen = models.BooleanField(default=False)
    """No automation of the pool does anything."""
    override_engines = models.PositiveIntegerField(null=True, blank=True)
    """Engines that the pool is to have until `override_until`, instead of scaling's plan."""
    override_prefill = models.PositiveIntegerField(null=True, blank=True)
    """Engines of the prefill role that it is to have, instead of the ratio's plan."""
    override_until = models.DateTimeField(null=True, blank=True)
    changed_at = models.DateTimeField(null=True, blank=True)
    changed_by = models.CharField(max_length=150, blank=True)
    why = models.CharField(max_length=200, blank=True)
    revision = models.PositiveIntegerField(default=1)
    """Rises with each change; the ETag of the API."""

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=models.Q(override_until__isnull=False)
                | models.Q(override_engines=None, override_prefill=None),
                name="automation_override_has_an_end",
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.pool} {'frozen' if self.frozen else 'free'}"
