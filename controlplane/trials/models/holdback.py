"""The holdback of a pool: a simple rule that serves a share of the sessions, or all if the policy does worse."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool


class SliceState(models.TextChoices):
    """The side that serves the pool."""

    OFF = "off", "Policy serves all sessions"
    SLICE = "slice", "Holdback active"
    FALLBACK = "fallback", "Fallback: simple rule serves all sessions"
    PROBING = "probing", "Policy is probed on a share"


class Holdback(models.Model):
    """State of a pool's holdback. A pool without a row has no holdback."""

    pool = models.OneToOneField(Pool, on_delete=models.CASCADE, related_name="holdback")
    state = models.CharField(max_length=16, choices=SliceState.choices, default=SliceState.OFF)
    since = models.DateTimeField()
    trial_id = models.CharField(max_length=16)
    """Salt with which sessions are assigned."""
    memory = models.JSONField(default=dict)
    """planning.trials.holdback.SliceMemory as JSON."""
    share = models.FloatField(default=0.0)
    """Current share of the simple rule, 0..1."""
    reason = models.CharField(max_length=400, blank=True)
    """Reason for the state."""
    evaluation = models.JSONField(default=dict)
    """The job's last evaluation: controlplane.trials.canary.evaluation.CanaryEvaluation as JSON."""

    class Meta:
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=SliceState.values), name="holdback_state_known"),
        )

    @override
    def __str__(self) -> str:
        return f"holdback of {self.pool}: {self.state}"
