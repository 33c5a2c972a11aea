"""Position of one recorded decision, and the fields by which it is searched."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.request_log.models.segment import Segment


class DecisionIndex(models.Model):
    """One row per stored decision. The record itself is in a segment.

    `pool`, `engine`, and `tenant` are not foreign keys, because decisions outlive them. Rows are deleted with their
    segment.
    """

    decision_id = models.CharField(max_length=64, unique=True)
    at_ms = models.BigIntegerField()
    """Unix milliseconds of the request's arrival."""
    ended_ms = models.BigIntegerField(null=True)
    """Unix milliseconds of its end. None: it was recorded before its end, or the row is older than this column."""
    pool = models.CharField(max_length=64)
    engine = models.CharField(max_length=64, blank=True)
    """Empty: the request was rejected."""
    tenant = models.CharField(max_length=64)
    session = models.CharField(max_length=16, blank=True)
    """Keyed digest of the session's id."""
    client_request_id = models.CharField(max_length=128, blank=True, default="")
    """The client's X-Request-Id; empty: none was sent, or the row is older than this column."""
    reason = models.CharField(max_length=32)
    """Reason for choosing this engine or no engine: a code in routing.values.reasons."""
    policy_version = models.IntegerField()
    arm = models.CharField(max_length=16, blank=True, default="")
    """live, canary, or control; empty: no trial, or the row is older than this column."""
    outcome = models.CharField(max_length=16)
    error = models.CharField(max_length=64, blank=True)
    late = models.BooleanField()
    """Whether the objective was missed."""
    ttft_ms = models.IntegerField(null=True)
    queued_ms = models.IntegerField(null=True)
    prompt_tokens = models.IntegerField()
    predicted_tokens = models.IntegerField()
    """Cached tokens predicted by the index, regardless of the trust in it."""
    reported_tokens = models.IntegerField(null=True)
    mismatch = models.CharField(max_length=16, blank=True)
    regret_ms = models.IntegerField(null=True)
    regret_cause = models.CharField(max_length=16, blank=True)
    share = models.FloatField(default=1.0)
    """Sampling rate of similar decisions. The weight of this one is 1 / share."""
    segment = models.ForeignKey(Segment, on_delete=models.CASCADE, related_name="+")
    position = models.PositiveSmallIntegerField()
    """Index within the segment."""

    class Meta:
        # Each index adds an entry per kept decision, so indexes on rarely set fields leave empty values out.
        indexes = (
            models.Index(fields=("at_ms", "id"), name="decision_by_time"),
            models.Index(fields=("pool", "at_ms"), name="decision_by_pool"),
            models.Index(fields=("engine", "at_ms"), name="decision_by_engine"),
            models.Index(fields=("tenant", "at_ms"), name="decision_by_tenant"),
            models.Index(fields=("session", "at_ms"), name="decision_by_session", condition=~models.Q(session="")),
            models.Index(fields=("arm", "at_ms"), name="decision_by_arm", condition=~models.Q(arm="")),
            models.Index(
                fields=("client_request_id",), name="decision_by_client_id", condition=~models.Q(client_request_id="")
            ),
            models.Index(fields=("at_ms",), name="decision_late", condition=models.Q(late=True)),
        )

    @override
    def __str__(self) -> str:
        return f"{self.decision_id} {self.pool} → {self.engine or 'nowhere'}"
