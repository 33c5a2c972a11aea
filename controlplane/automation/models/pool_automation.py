"""An operator's current limits on a pool's automations, which take precedence over its policy."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.platform.revisions import RevisedModel


class PoolAutomation(RevisedModel):
    """A pool's switches, which take effect immediately. A pool without a row is neither frozen nor overridden."""

    public_id_field = "pk"

    pool = models.OneToOneField(Pool, on_delete=models.CASCADE, related_name="automation", primary_key=True)
    frozen = models.BooleanField(default=False)
    """Whether all automations of the pool are stopped."""
    override_engines = models.PositiveIntegerField(null=True, blank=True)
    """Number of engines that the pool should have until `override_until`, instead of the scaling plan."""
    override_prefill = models.PositiveIntegerField(null=True, blank=True)
    """Number of prefill engines that the pool should have, instead of the ratio plan."""
    override_until = models.DateTimeField(null=True, blank=True)
    changed_at = models.DateTimeField(null=True, blank=True)
    changed_by = models.CharField(max_length=150, blank=True)
    why = models.CharField(max_length=200, blank=True)

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
