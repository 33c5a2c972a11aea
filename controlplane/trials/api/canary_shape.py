"""Canaries on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
from django.utils import timezone
from rest_framework import serializers

from controlplane.platform.api.strict_fields import Change, Document, Number, Text, Truth, WholeNumber
from controlplane.trials.canary.evidence import standing
from controlplane.trials.canary.lifecycle import ADVANCES, DEFAULT_DWELL_S, DEFAULT_STEPS, LONGEST_DWELL_S, MAX_STEPS
from controlplane.trials.models.canary import Canary


class CanaryShape(serializers.ModelSerializer):
    """One canary: its course, how it stands, and the last look at both arms."""

    policy = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    against = serializers.IntegerField(
        source="against.number", read_only=True, help_text="Number of the version that was live when it began."
    )
    pool = serializers.SlugRelatedField(
        slug_field="slug",
        read_only=True,
        allow_null=True,
        help_text="The pool on trial, beside the other pools of its model in its region; null: a version is.",
    )
    steps = serializers.ListField(child=serializers.FloatField(), read_only=True)
    share = serializers.FloatField(read_only=True, help_text="Share of sessions at its step, 0 to 1.")
    guards = serializers.DictField(read_only=True)
    look = serializers.DictField(
        read_only=True,
        help_text="Figures of both sides (base: the live version or the other pools, tried: the canary), guardrails "
        "with thresholds, and reasons. Empty: not evaluated yet.",
    )

    evidence = serializers.SerializerMethodField(
        help_text="What is known at its step: dwell_s and requests that are yet to come; guards, each with the verdict "
        "holds, not_yet or broken and, of not_yet, wait_s, about how long until it can be known; missing, in "
        "sentences; wait_s over all of it (null: no estimate). Empty: it has ended.",
    )

    class Meta:
        model = Canary
        fields = (
            "key",
            "policy",
            "version",
            "against",
            "pool",
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
            "evidence",
        )
        read_only_fields = fields

    def get_evidence(self, canary: Canary) -> dict[str, Any]:
        """Return how far the evidence of its step has come."""
        found: dict[str, Any] = msgspec.to_builtins(standing(canary, timezone.now())) if canary.running else {}
        return found


class GoOn(Change):
    """A step or the promotion of a trial."""

    force = Truth(
        required=False,
        default=False,
        help_text="Continue without evidence; `why` is then required, and the audit records what was missing.",
    )


class NewCanary(Change):
    """A trial."""

    policy = Text(required=False, help_text="Slug of the policy; with version.")
    version = WholeNumber(
        required=False, min_value=0, max_value=2**31 - 1, help_text="Number of the candidate version."
    )
    pool = Text(
        required=False,
        help_text="Instead of policy and version: slug of a pool of weight 0 that gets a share of the sessions of the "
        "other pools of its model in its region. Promotion sets its weight.",
    )
    steps = serializers.ListField(
        child=Number(min_value=0, max_value=1),
        required=False,
        default=list(DEFAULT_STEPS),
        max_length=MAX_STEPS,
        help_text="Increasing shares of sessions, each above 0 and below 1; promotion follows the last.",
    )
    min_dwell_s = Number(
        min_value=0,
        max_value=LONGEST_DWELL_S,
        required=False,
        default=DEFAULT_DWELL_S,
        help_text="Minimum seconds per step before an automatic step.",
    )
    advance = serializers.ChoiceField(
        choices=ADVANCES,
        required=False,
        default="by_hand",
        help_text="by_hand: manual steps. steps: automatic steps, manual promotion. promote: automatic steps and "
        "promotion.",
    )
    guards = Document(
        required=False,
        default=dict,
        help_text="late_more, failed_more, ttft_ratio, tail_ratio, min_requests, window_s; omitted ones take their "
        "defaults.",
    )
