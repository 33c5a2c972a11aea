"""What-ifs on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from controlplane.api.strict_fields import Change, Document, WholeNumber
from controlplane.services.whatifs import standing_of


class WhatIfShape(serializers.Serializer):
    """One what-if: what was asked, how it stands, and its answer."""

    id = serializers.IntegerField()
    pool = serializers.CharField()
    recording = serializers.IntegerField(allow_null=True, help_text="Null: it was deleted since.")
    recording_name = serializers.CharField()
    draft = serializers.IntegerField(help_text="Number of the version.")
    base = serializers.IntegerField(help_text="Number of the version it is compared with.")
    conditions = serializers.DictField()
    state = serializers.CharField(help_text="waiting, running, done, failed or cancelled.")
    progress = serializers.FloatField(help_text="Share that is done, 0 to 1.")
    reason = serializers.CharField(help_text="Why there is no answer.")
    run = serializers.IntegerField(allow_null=True, help_text="Its job run, to cancel or retry.")
    result = serializers.DictField(allow_null=True)
    author = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Return the what-if with how it stands."""
        standing = standing_of(instance)
        return {
            "id": instance.pk,
            "pool": instance.pool.slug,
            "recording": instance.recording_id,
            "recording_name": instance.recording_name,
            "draft": instance.draft.number,
            "base": instance.base.number,
            "conditions": instance.conditions,
            "state": standing.state,
            "progress": standing.share,
            "reason": standing.reason,
            "run": standing.run.pk if standing.run is not None else None,
            "result": instance.result,
            "author": instance.author.get_username() if instance.author is not None else None,
            "created_at": instance.created_at,
        }


class NewWhatIf(Change):
    """A question."""

    recording = WholeNumber(min_value=0, max_value=10**18 - 1, help_text="Id of the recording.")
    draft = WholeNumber(min_value=0, max_value=2**31 - 1, help_text="Number of the version to try.")
    base = WholeNumber(
        min_value=0, max_value=2**31 - 1, required=False, allow_null=True, default=None, help_text="Null: the live one."
    )
    conditions = Document(
        required=False,
        default=dict,
        help_text="seeds (1 to 10), warmup_share, max_requests, engines, engine_model (auto: as comes closest "
        "to what happened, chunked, colocated, reference), base_placement (a baseline that places the base's "
        "requests), goodput; what is left out takes its default.",
    )
