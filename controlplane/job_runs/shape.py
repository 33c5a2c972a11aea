"""Job runs on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.platform.models.job_run import JobRun


class JobRunShape(serializers.ModelSerializer):
    """One background run."""

    class Meta:
        model = JobRun
        fields = (
            "id",
            "job",
            "shard",
            "state",
            "inputs",
            "plan",
            "progress",
            "outcome",
            "lease_owner",
            "lease_until",
            "cancel_requested_at",
            "cancel_requested_by",
            "retry_of",
            "started_at",
            "finished_at",
        )
        read_only_fields = fields
