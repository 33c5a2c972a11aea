"""Recordings on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.platform.api.strict_fields import Change, Text
from controlplane.request_log.models.recording import Recording
from controlplane.request_log.recordings.lifecycle import MAX_NAME


class RecordingShape(serializers.ModelSerializer):
    """One recording of traffic: its figures; the rows are at `/trace`."""

    pool = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    author = serializers.CharField(source="author.username", read_only=True, allow_null=True)
    statistics = serializers.DictField(read_only=True)

    class Meta:
        model = Recording
        fields = (
            "id",
            "name",
            "pool",
            "origin",
            "begins_at",
            "ends_at",
            "requests",
            "file_bytes",
            "statistics",
            "author",
            "created_at",
        )
        read_only_fields = fields


class NewRecording(Change):
    """A window of the traffic that is always recorded."""

    pool = Text(max_length=64, help_text="Slug of the pool.")
    begins_at = serializers.DateTimeField(help_text="First arrival.")
    ends_at = serializers.DateTimeField(help_text="Arrivals before this time.")
    name = Text(
        max_length=MAX_NAME, required=False, allow_blank=True, default="", help_text="Empty: named after its window."
    )
