"""What-ifs on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from typing_extensions import override

from controlplane.platform.api.strict_fields import Change, Document, WholeNumber
from controlplane.trials.whatif.lifecycle import standing_of


class WhatIfShape(serializers.Serializer):
    """One what-if: what was asked, how it stands, and its answer."""

    id = serializers.IntegerField(source="whatif.pk")
    pool = serializers.CharField(source="whatif.pool.slug")
    recording = serializers.IntegerField(source="whatif.recording_id", allow_null=True, help_text="Null: deleted.")
    recording_name = serializers.CharField(source="whatif.recording_name")
    draft = serializers.IntegerField(source="whatif.draft.number", help_text="Number of the version.")
    base = serializers.IntegerField(source="whatif.base.number", help_text="Number of the version it is compared with.")
    conditions = serializers.DictField(source="whatif.conditions")
    state = serializers.CharField(help_text="waiting, running, done, failed or cancelled.")
    progress = serializers.FloatField(source="share", help_text="Progress, 0 to 1.")
    reason = serializers.CharField(help_text="Reason for no result.")
    run = serializers.IntegerField(source="run.pk", allow_null=True, help_text="Job run, to cancel or retry.")
    result = serializers.DictField(source="whatif.result", allow_null=True)
    author = serializers.CharField(source="whatif.author.username", allow_null=True)
    created_at = serializers.DateTimeField(source="whatif.created_at")

    @override
    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Return the what-if with how it stands."""
        return super().to_representation(standing_of(instance))


class NewWhatIf(Change):
    """A question."""

    recording = WholeNumber(min_value=0, max_value=10**18 - 1, help_text="Id of the recording.")
    draft = WholeNumber(min_value=0, max_value=2**31 - 1, help_text="Number of the candidate version.")
    base = WholeNumber(
        min_value=0, max_value=2**31 - 1, required=False, allow_null=True, default=None, help_text="Null: the live one."
    )
    conditions = Document(
        required=False,
        default=dict,
        help_text="seeds (1 to 10), warmup_share, max_requests, engines, engine_model (auto: best fit to the "
        "recording, chunked, colocated, reference), base_placement (a baseline that places the base version's "
        "requests), goodput; omitted ones take their defaults.",
    )
