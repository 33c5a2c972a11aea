"""One background run, the source of truth about jobs. Celery only wakes jobs."""

from __future__ import annotations

from django.db import models
from typing_extensions import override


class JobState(models.TextChoices):
    """State of a run."""

    ACTIVE = "active", "Active"
    DONE = "done", "Finished"
    FAILED = "failed", "Failed"
    ABANDONED = "abandoned", "Abandoned"
    CANCELLED = "cancelled", "Canceled"


class JobRun(models.Model):
    """One run of a job on one shard. The last process that updated it conditionally is its holder."""

    public_id_field = "pk"

    job = models.CharField(max_length=64)
    shard = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=16, choices=JobState.choices, default=JobState.ACTIVE)
    inputs = models.JSONField(default=dict)
    plan = models.JSONField(default=dict)
    outcome = models.JSONField(default=dict)
    progress = models.JSONField(default=dict)
    memory = models.JSONField(default=dict)
    """The planner's memory between rounds. The shard's next run inherits it."""
    lease_owner = models.CharField(max_length=200, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    fencing_token = models.PositiveBigIntegerField(default=0)
    """Incremented for each new holder, across all runs of the same job and shard."""
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    """Set when a person requests the end of the run. Its holder notices at its next lease renewal."""
    cancel_requested_by = models.CharField(max_length=150, blank=True)
    retry_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="retries")
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-started_at", "-id")
        constraints = (
            # Of two processes that start the run at once, one gets an IntegrityError (jobs.lease).
            models.UniqueConstraint(
                fields=("job", "shard"), condition=models.Q(state=JobState.ACTIVE), name="job_run_active_once"
            ),
            models.CheckConstraint(condition=models.Q(state__in=JobState.values), name="job_run_state_known"),
            models.CheckConstraint(
                condition=models.Q(state=JobState.ACTIVE, finished_at=None)
                | (~models.Q(state=JobState.ACTIVE) & models.Q(finished_at__isnull=False)),
                name="job_run_finished_when_not_active",
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.job}[{self.shard}] #{self.pk}"
