"""Engine health of one engine as judged by the automation: durable, fleet-wide, with its reason."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.fleet.models.engine import Engine


class HealthState(models.TextChoices):
    """The automation's verdict on an engine (planning.engine_health.health_verdict)."""

    HEALTHY = "healthy", "Healthy"
    SUSPECT = "suspect", "Suspect"
    QUARANTINED = "quarantined", "Quarantined"
    PROBATION = "probation", "Returning (slow start)"


class EngineHealth(models.Model):
    """The last verdict in force. An engine without one is healthy."""

    engine = models.OneToOneField(Engine, on_delete=models.CASCADE, related_name="health", primary_key=True)
    state = models.CharField(max_length=16, choices=HealthState.choices, default=HealthState.HEALTHY)
    code = models.CharField(max_length=64, blank=True)
    reason = models.CharField(max_length=300, blank=True)
    """One sentence; empty if healthy."""
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)
    """Earliest end of a quarantine."""
    slow_start_from = models.FloatField(default=1.0)
    """Fraction of its load that the engine gets at the start of a probation."""
    slow_start_s = models.FloatField(default=0.0)
    """Seconds from `since` until the fraction reaches 1."""

    class Meta:
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=HealthState.values), name="engine_health_state_known"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.engine} {self.state}"
