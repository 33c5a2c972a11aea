"""A version that goes live at a scheduled time."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.platform.revisions import RevisedModel
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion


class ScheduleState(models.TextChoices):
    """State of a scheduled publish."""

    WAITING = "waiting", "Scheduled"
    PUBLISHED = "published", "Went live"
    FAILED = "failed", "Failed; see the problem"
    CANCELLED = "cancelled", "Canceled, or another version went live first"


class ScheduledPublish(RevisedModel):
    """One scheduled publish. It ends exactly once, by a conditional update in the transaction of its cause."""

    public_id_field = "pk"

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="schedules")
    """The version's policy; stored here so that the database can enforce one waiting publish per policy."""
    version = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="schedules")
    at = models.DateTimeField()
    instead_of = models.PositiveIntegerField(null=True, blank=True)
    """Number of the live version at scheduling time. A newer live version prevents the publish."""
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    """The person whose role is checked again at the due time; empty for an API key and for the program."""
    by_key = models.CharField(max_length=64, blank=True)
    """Id of the API key that scheduled it; empty for people and for the program."""
    by_name = models.CharField(max_length=150)
    why = models.CharField(max_length=200, blank=True)
    state = models.CharField(max_length=16, choices=ScheduleState.choices, default=ScheduleState.WAITING)
    problem = models.CharField(max_length=500, blank=True)
    """Reason if it ended without a publish."""
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("policy", "-id")
        verbose_name = "scheduled publish"
        constraints = (
            models.UniqueConstraint(
                fields=("policy",), condition=models.Q(state=ScheduleState.WAITING), name="one_waiting_publish"
            ),
            models.CheckConstraint(condition=models.Q(state__in=ScheduleState.values), name="schedule_state_known"),
        )
        indexes = (models.Index(fields=("state", "at"), name="schedule_by_due"),)

    @override
    def __str__(self) -> str:
        return f"{self.version} at {self.at:%Y-%m-%d %H:%M} UTC"
