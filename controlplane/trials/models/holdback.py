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
    counted_to_s = models.FloatField(default=0.0)
    """Unix seconds up to which the requests of both arms are in HoldbackDay."""
    evaluation = models.JSONField(default=dict)
    """The job's last evaluation: controlplane.trials.canary.evaluation.CanaryEvaluation as JSON."""

    class Meta:
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=SliceState.values), name="holdback_state_known"),
        )

    @override
    def __str__(self) -> str:
        return f"holdback of {self.pool}: {self.state}"


class HoldbackDay(models.Model):
    """What a pool's holdback and its policy answered on one UTC day while both served, without canaries."""

    day = models.DateField()
    pool = models.CharField(max_length=64)
    placement = models.CharField(max_length=64)
    """The simple rule."""
    control = models.BigIntegerField(default=0)
    """Judged requests of the simple rule."""
    control_late = models.BigIntegerField(default=0)
    live = models.BigIntegerField(default=0)
    live_late = models.BigIntegerField(default=0)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("day", "pool", "placement"), name="holdback_once_per_day"),)

    @override
    def __str__(self) -> str:
        return f"holdback of {self.pool} on {self.day}"

    @property
    def share(self) -> float:
        """Return the simple rule's share of the requests, 0..1."""
        return self.control / (self.control + self.live) if self.control else 0.0
