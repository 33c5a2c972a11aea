"""Canaries on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.api.strict_fields import Change, Document, Number, Text, Truth, WholeNumber
from controlplane.models import Canary
from controlplane.services.canaries import ADVANCES, DEFAULT_DWELL_S, DEFAULT_STEPS, LONGEST_DWELL_S, MAX_STEPS


class CanaryShape(serializers.ModelSerializer):
    """One canary: its course, how it stands, and the last look at both arms."""

    policy = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    against = serializers.IntegerField(
        source="against.number", read_only=True, help_text="Number of the version that was live when it began."
    )
    steps = serializers.ListField(child=serializers.FloatField(), read_only=True)
    share = serializers.FloatField(read_only=True, help_text="Share of the sessions at its step, 0 to 1.")
    guards = serializers.DictField(read_only=True)
    look = serializers.DictField(
        read_only=True,
        help_text="Figures of both arms (base: the live version, tried: the canary), guards with their bounds, and "
        "reasons. Empty: nobody looked yet.",
    )

    class Meta:
        model = Canary
        fields = (
            "key",
            "policy",
            "version",
            "against",
            "steps",
            "step",
            "share",
            "step_at",
            "min_dwell_s",
            "advance",
            "guards",
            "state",
            "reason",
            "why",
            "author_name",
            "ended_by",
            "started_at",
            "ended_at",
            "look",
        )
        read_only_fields = fields


class GoOn(Change):
    """A step or the promotion of a trial."""

    force = Truth(
        required=False,
        default=False,
        help_text="Go on although evidence is missing; `why` is then required, and the audit names what was missing.",
    )


class NewCanary(Change):
    """A trial."""

    policy = Text(help_text="Slug of the policy.")
    version = WholeNumber(min_value=0, max_value=2**31 - 1, help_text="Number of the version to try.")
    steps = serializers.ListField(
        child=Number(min_value=0, max_value=1),
        required=False,
        default=list(DEFAULT_STEPS),
        max_length=MAX_STEPS,
        help_text="Rising shares of the sessions, each above 0 and below 1; promoting comes after the last.",
    )
    min_dwell_s = Number(
        min_value=0,
        max_value=LONGEST_DWELL_S,
        required=False,
        default=DEFAULT_DWELL_S,
        help_text="Seconds that each step lasts at least before the next comes by itself.",
    )
    advance = serializers.ChoiceField(
        choices=ADVANCES,
        required=False,
        default="by_hand",
        help_text="by_hand: somebody takes each step. steps: steps come by themselves. promote: promoting too.",
    )
    guards = Document(
        required=False,
        default=dict,
        help_text="late_more, failed_more, ttft_ratio, tail_ratio, min_requests, window_s; what is left out takes its "
        "default.",
    )
