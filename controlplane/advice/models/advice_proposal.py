"""A proposal of the adviser, or its abstention, and its predictions."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.platform.revisions import RevisedModel
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.shadow import Shadow
from planning.adviser import autopilot


class ProposalState(models.TextChoices):
    """State of a proposal. All but the first three are final."""

    OPEN = autopilot.OPEN, "Open"
    IN_CANARY = autopilot.IN_CANARY, "In canary"
    PROMOTED = autopilot.PROMOTED, "Promoted"
    REJECTED = autopilot.REJECTED, "Rejected"
    WITHDRAWN = autopilot.WITHDRAWN, "Withdrawn"
    SUPERSEDED = autopilot.SUPERSEDED, "Superseded"
    CONTRADICTED = autopilot.CONTRADICTED, "Contradicted"
    ABSTAINED = autopilot.ABSTAINED, "No proposal"


class AdviceProposal(RevisedModel):
    """The result of one search over a pool's recorded windows."""

    public_id_field = "pk"

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="proposals")
    state = models.CharField(max_length=16, choices=ProposalState.choices, default=ProposalState.OPEN)
    base = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    """The live version that it was predicted against."""
    version = models.ForeignKey(PolicyVersion, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    """Its draft. None: an abstention, or the draft was deleted."""
    document = models.JSONField(default=dict)
    """The proposed policy; empty for an abstention."""
    evidence = models.JSONField()
    """controlplane.advice.evidence.AdviceEvidence as JSON."""
    digest = models.CharField(max_length=64)
    """SHA-256 of the versions and windows: the same evidence gives the same proposal."""
    evidence_until = models.DateTimeField()
    """End of the recorded traffic that the search read."""
    reason = models.CharField(max_length=400, blank=True)
    """Why it has its state; for an abstention, why there is no proposal."""
    waits = models.CharField(max_length=400, blank=True)
    """What the autopilot waits for."""
    shadow = models.ForeignKey(Shadow, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    canary = models.ForeignKey(Canary, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    holdback = models.JSONField(default=dict)
    """planning.adviser.autopilot.HoldbackCounts at the promotion, as JSON."""
    created_at = models.DateTimeField()
    promoted_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    """When its state became final, or when it was promoted."""
    ended_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=ProposalState.values), name="proposal_state_known"),
            models.UniqueConstraint(
                fields=("pool",), condition=models.Q(state__in=("open", "in_canary")), name="proposal_one_per_pool"
            ),
        )
        indexes = (models.Index(fields=("state", "-created_at"), name="proposal_by_state"),)

    @override
    def __str__(self) -> str:
        return f"proposal {self.pk}"


class AdvicePrediction(models.Model):
    """One objective of a promoted proposal: the predicted change, and the measured one."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    proposal = models.ForeignKey(AdviceProposal, on_delete=models.CASCADE, related_name="predictions")
    objective = models.CharField(max_length=32)
    """Name in planning.adviser.prediction.OBJECTIVES."""
    predicted = models.FloatField()
    low = models.FloatField()
    high = models.FloatField()
    factor = models.FloatField(default=1.0)
    """By how much the range was widened, because earlier ranges were too narrow."""
    measured = models.FloatField(null=True, blank=True)
    """The change of live figures; empty: not measured yet, or not measurable."""
    against_holdback = models.FloatField(null=True, blank=True)
    """The same change relative to the holdback, whose traffic changed alike; empty: not known."""
    at = models.DateTimeField()
    """When it was predicted for: the promotion. Once measured, when it was measured."""

    class Meta:
        ordering = ("-at", "-id")
        constraints = (models.UniqueConstraint(fields=("proposal", "objective"), name="prediction_once_per_objective"),)

    @override
    def __str__(self) -> str:
        return f"{self.objective} of {self.proposal}"
