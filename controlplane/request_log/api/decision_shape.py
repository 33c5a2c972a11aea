"""Recorded decisions on the wire."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from controlplane.request_log.models.decision_index import DecisionIndex


class RecordedDecisionShape(serializers.ModelSerializer):
    """One decision, as it is found. Times in milliseconds, `at` is the request's arrival."""

    id = serializers.CharField(source="decision_id")
    at = serializers.SerializerMethodField()

    class Meta:
        model = DecisionIndex
        fields = (
            "id",
            "at",
            "pool",
            "engine",
            "tenant",
            "session",
            "reason",
            "policy_version",
            "arm",
            "outcome",
            "error",
            "late",
            "ttft_ms",
            "queued_ms",
            "prompt_tokens",
            "predicted_tokens",
            "reported_tokens",
            "mismatch",
            "regret_ms",
            "regret_cause",
            "share",
        )
        read_only_fields = fields

    def get_at(self, row: DecisionIndex) -> datetime:
        """Return the arrival."""
        return datetime.fromtimestamp(row.at_ms / 1000, UTC)


class DecisionStoryShape(serializers.Serializer):
    """The decision in words."""

    title = serializers.CharField()
    verdict = serializers.CharField()
    why = serializers.CharField()
    happened = serializers.CharField()
    to_do = serializers.CharField()


class RecordedDecisionDetailShape(serializers.Serializer):
    """One decision in full: the record as the gateway wrote it, and its story."""

    id = serializers.CharField()
    stored = serializers.BooleanField(help_text="False: in the gateway's memory only, or not stored yet.")
    record = serializers.DictField(help_text="Candidates with their terms, ages, trust, outcome, regret by cause.")
    story = DecisionStoryShape()

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Return the members as they are."""
        return instance
