"""Recorded traffic that a person keeps: its shape only, never prompts."""

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
    """One recording; its trace is in segments (controlplane.request_log.recordings.kept_traces), copies by `key`."""

    key = models.CharField(max_length=16, unique=True)
    name = models.CharField(max_length=120)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="recordings")
    origin = models.CharField(max_length=16, choices=Origin.choices)
    begins_at = models.DateTimeField(null=True, blank=True)
    """Start of a window; an upload has none."""
    ends_at = models.DateTimeField(null=True, blank=True)
    requests = models.PositiveIntegerField()
    file_bytes = models.PositiveBigIntegerField()
    statistics = models.JSONField()
    """controlplane.request_log.recordings.statistics.RecordingStatistics as JSON."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    """Empty for recordings made by an API key or the program itself."""
    created_at = models.DateTimeField(auto_now_add=True)
    revision = 1
    """It never changes; the ETag of the API."""

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(condition=models.Q(origin__in=Origin.values), name="recording_origin_known"),
            models.CheckConstraint(condition=models.Q(requests__gte=1), name="recording_not_empty"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.name} ({self.pool}, {count(self.requests, 'request')})"
