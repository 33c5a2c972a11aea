"""Records of the request log, packed together."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.request_log.models.recording import Recording


class Retention(models.TextChoices):
    """Retention class, which determines how long records are kept and which segment contains them."""

    DECISIONS = "decisions", "Decisions in full, within HEADWAY_DECISION_BYTES"
    TRAFFIC = "traffic", "Shapes of all requests, within HEADWAY_RECORDING_BYTES and _HOURS"
    KEPT = "kept", "Part of the trace of a recording, until that is deleted"


class Segment(models.Model):
    """A unit of storage: one request batch's rows for one retention class, several merged small batches, or a part of a
    recording's trace.
    """

    retention = models.CharField(max_length=16, choices=Retention.choices)
    batch = models.CharField(max_length=64)
    """Name of the batch, which prevents storing it twice. Merged batches: "+" and the name of the first batch. Part of
    a trace: the recording's key and a number.
    """
    at_ms = models.BigIntegerField()
    """Unix milliseconds at which the segment was stored."""
    size = models.BigIntegerField()
    """Bytes that count against the budget, including index rows."""
    merged_at_ms = models.BigIntegerField(null=True, blank=True)
    """Unix milliseconds at which the content was merged into another segment. This segment is kept for its current
    readers.
    """
    recording = models.ForeignKey(Recording, on_delete=models.CASCADE, null=True, blank=True, related_name="segments")
    data = models.BinaryField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("batch", "retention"), name="segment_stored_once"),)
        # All columns that retention reads are in the index, so that adding up sizes does not read the data.
        indexes = (
            models.Index(fields=("retention", "at_ms", "id", "size", "merged_at_ms"), name="segment_by_age"),
            models.Index(
                fields=("merged_at_ms",), name="segment_merged", condition=models.Q(merged_at_ms__isnull=False)
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.retention} {self.batch}"


class MergedBatches(models.Model):
    """Batches of one gateway process whose segments were merged. Their names prevent storing them twice."""

    source = models.CharField(max_length=64, primary_key=True)
    """The name of a batch without its number."""
    numbers = models.JSONField(default=list)
    """Ascending, non-overlapping spans [first, last]."""
    at_ms = models.BigIntegerField(db_index=True)
    """Unix milliseconds of the last change."""

    @override
    def __str__(self) -> str:
        return f"{self.source}: {len(self.numbers)} spans"
