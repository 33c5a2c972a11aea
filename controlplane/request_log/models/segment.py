"""Some records of the request log, packed together."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.request_log.models.recording import Recording


class Retention(models.TextChoices):
    """How long records are kept, and so which records a segment holds."""

    DECISIONS = "decisions", "Decisions in full, within HEADWAY_DECISION_BYTES"
    TRAFFIC = "traffic", "Shapes of all requests, within HEADWAY_RECORDING_BYTES and _HOURS"
    KEPT = "kept", "Part of the trace of a recording, until that is deleted"


class Segment(models.Model):
    """The rows of one request batch for one retention class, or of several small ones merged, or a part of a
    recording's trace.
    """

    retention = models.CharField(max_length=16, choices=Retention.choices)
    batch = models.CharField(max_length=64)
    """Name of the batch, by which no process stores it again; of several merged: "+" and the name of the first; of a
    trace's part: the recording's key and a number.
    """
    at_ms = models.BigIntegerField()
    """Unix milliseconds at which it was stored."""
    size = models.BigIntegerField()
    """Bytes that count against the budget, including its index rows."""
    merged_at_ms = models.BigIntegerField(null=True, blank=True)
    """Unix milliseconds at which another segment got all its content; it stays for its present readers."""
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
    """Batches of one gateway process whose segments were merged: by their names, no process stores them again."""

    source = models.CharField(max_length=64, primary_key=True)
    """The name of a batch without its number."""
    numbers = models.JSONField(default=list)
    """Ascending [first, last], without overlap."""
    at_ms = models.BigIntegerField(db_index=True)
    """Unix milliseconds of the last change."""

    @override
    def __str__(self) -> str:
        return f"{self.source}: {len(self.numbers)} spans"
