"""The latest cost of one engine kind in a pool, as learned by gateways."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool


class LearnedCost(models.Model):
    """Learned cost of one engine kind; deleted with its pool."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="learned_costs")
    kind = models.CharField(max_length=32, blank=True)
    """Engine.kind; empty: the pool's default kind."""
    fitted = models.JSONField()
    """routing.cost.cost_fit.FittedCost as JSON, validated before it was stored."""
    learned_at = models.DateTimeField()

    class Meta:
        ordering = ("pool", "kind")
        constraints = (models.UniqueConstraint(fields=("pool", "kind"), name="learned_cost_once_per_kind"),)

    @override
    def __str__(self) -> str:
        return f"{self.pool}/{self.kind or 'all'}"
