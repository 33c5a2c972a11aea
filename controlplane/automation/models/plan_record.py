"""One plan of an automation: its observations, intent, and outcome."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class PlanRecord(models.Model):
    """One plan, for charts and people. `pool` is not a foreign key, because the history outlives the pool."""

    pool = models.CharField(max_length=64)
    job = models.CharField(max_length=64)
    at = models.DateTimeField()
    mode = models.CharField(max_length=16)
    """Mode of the plan: act, advise, frozen, or override."""
    changes = models.BooleanField(default=False)
    """Whether the plan called for changes."""
    summary = models.CharField(max_length=300, blank=True)
    """The first reason, as a sentence."""
    reasons = models.JSONField(default=list)
    """Code and text of each reason."""
    figures = models.JSONField(default=dict)
    """Numbers for charts: observed, predicted, and wanted."""
    plan = models.JSONField(default=dict)
    outcome = models.JSONField(default=dict)
    """The changes that were carried out."""

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("pool", "job", "at"), name="plan_record_by_pool_job_time"),)

    @override
    def __str__(self) -> str:
        return f"{self.pool} {self.job} {self.at:%H:%M:%S}"
