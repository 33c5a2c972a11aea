"""A draft that decides next to a pool's live policy for some time, and the gateways' counts."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy_version import PolicyVersion


class ShadowState(models.TextChoices):
    """State of a shadow."""

    RUNNING = "running", "Running"
    ENDED = "ended", "Ended"
    FAILED = "failed", "Failed"


class Shadow(models.Model):
    """One run of a draft next to the version that was live at its start."""

    key = models.CharField(max_length=32, unique=True)
    """Its id in snapshots and reports."""
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="shadows")
    draft = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    base = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    observed = models.BooleanField(default=False)
    """Whether the pool only observes. The draft is then compared with the other router's choices."""
    state = models.CharField(max_length=16, choices=ShadowState.choices, default=ShadowState.RUNNING)
    max_per_s = models.PositiveIntegerField(default=50, validators=[MinValueValidator(1), MaxValueValidator(1000)])
    """Requests compared per second at each gateway."""
    created_at = models.DateTimeField()
    until = models.DateTimeField()
    """Scheduled end."""
    ended_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=300, blank=True)
    """Reason for its end, as a sentence."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=ShadowState.values), name="shadow_state_known"),
            models.UniqueConstraint(
                fields=("pool",), condition=models.Q(state=ShadowState.RUNNING), name="shadow_one_per_pool"
            ),
        )

    @override
    def __str__(self) -> str:
        return f"shadow {self.pk}: {self.draft} beside {self.base}"


class ShadowPart(models.Model):
    """One gateway's counts of a shadow. A later report replaces an earlier one."""

    shadow = models.ForeignKey(Shadow, on_delete=models.CASCADE, related_name="parts")
    part = models.CharField(max_length=128)
    at = models.FloatField()
    """Unix seconds of the report."""
    tally = models.JSONField()
    """gateway.contracts.shadow_tally.ShadowTally as JSON, validated before it was stored."""

    class Meta:
        ordering = ("shadow", "id")
        constraints = (models.UniqueConstraint(fields=("shadow", "part"), name="shadow_part_once"),)

    @override
    def __str__(self) -> str:
        return f"{self.part} of {self.shadow}"
