"""A trial on a share of the sessions: a policy version next to the live one, or a pool next to other pools."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.platform.revisions import RevisedModel
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion


class CanaryState(models.TextChoices):
    """State of a canary."""

    RUNNING = "running", "Running"
    PROMOTED = "promoted", "Promoted"
    ABORTED = "aborted", "Aborted"
    ENDED = "ended", "Ended by another change"


class Canary(RevisedModel):
    """One canary. Its outcome remains readable."""

    public_id_field = "key"

    key = models.CharField(max_length=16, unique=True)
    """Public id, and the salt with which sessions are assigned."""
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="canaries")
    version = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    against = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    """The live version when the canary began."""
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    """The pool on trial; `version` and `against` are then both the live version. None: the version is on trial."""
    steps = models.JSONField()
    """Shares of the sessions, ascending, between 0 and 1 (exclusive)."""
    step = models.PositiveSmallIntegerField(default=0)
    """Index of the current share."""
    step_at = models.DateTimeField()
    min_dwell_s = models.FloatField()
    """Minimum duration of each step in seconds, before the job takes the next one."""
    advance = models.CharField(max_length=16)
    """by_hand, steps, or promote: how far the job advances the canary."""
    guardrails = models.JSONField()
    """planning.documents.guardrail_document.GuardrailDocument as JSON."""
    state = models.CharField(max_length=16, choices=CanaryState.choices, default=CanaryState.RUNNING)
    reason = models.CharField(max_length=400, blank=True)
    """Reason for its end."""
    why = models.CharField(max_length=200, blank=True)
    """Its author's reason."""
    author_name = models.CharField(max_length=150)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    ended_by = models.CharField(max_length=150, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    evaluation = models.JSONField(default=dict)
    """The job's last evaluation: controlplane.trials.canary.evaluation.CanaryEvaluation as JSON."""

    class Meta:
        ordering = ("-started_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("policy",), condition=models.Q(state="running"), name="canary_one_running_per_policy"
            ),
            models.CheckConstraint(condition=models.Q(state__in=CanaryState.values), name="canary_state_known"),
        )

    @override
    def __str__(self) -> str:
        return f"canary of {self.pool or self.version}"

    @property
    def share(self) -> float:
        """Return the share of the sessions at the current step, 0..1."""
        return float(self.steps[min(self.step, len(self.steps) - 1)])

    @property
    def running(self) -> bool:
        """Return whether the canary gets sessions."""
        return self.state == CanaryState.RUNNING
