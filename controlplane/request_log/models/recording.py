"""Traffic recordings that people create. They contain only lengths and times, never prompts."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from routing.values.counted import count


class Origin(models.TextChoices):
    """Source of a recording."""

    WINDOW = "window", "Window of recorded traffic"
    UPLOAD = "upload", "Uploaded trace"


class Recording(models.Model):
    """One recording.

    Its trace is in segments (controlplane.request_log.recordings.kept_traces); `key` names its copies.
    """

    key = models.CharField(max_length=16, unique=True)
    name = models.CharField(max_length=120)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="recordings")
    origin = models.CharField(max_length=16, choices=Origin.choices)
    begins_at = models.DateTimeField(null=True, blank=True)
    """Start of the recorded time window; empty for an upload."""
    ends_at = models.DateTimeField(null=True, blank=True)
    requests = models.PositiveIntegerField()
    file_bytes = models.PositiveBigIntegerField()
    statistics = models.JSONField()
    """controlplane.request_log.recordings.statistics.RecordingStatistics as JSON."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    """Empty for recordings created by an API key or the program."""
    created_at = models.DateTimeField(auto_now_add=True)
    revision = 1
    """Constant, because recordings never change; used as ETag of the API."""

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(condition=models.Q(origin__in=Origin.values), name="recording_origin_known"),
            models.CheckConstraint(condition=models.Q(requests__gte=1), name="recording_not_empty"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.name} ({self.pool}, {count(self.requests, 'request')})"
