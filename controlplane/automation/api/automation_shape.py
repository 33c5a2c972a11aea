"""Wire format of a pool's automations, plans, and actions."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.models.engine_health import EngineHealth
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.plan_advice import ADVISING
from controlplane.automation.switches import MAX_ENGINES
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape, Text, WholeNumber


class EngineHealthShape(ModelShape):
    """Health of one engine, as the automation judges it."""

    engine = serializers.SlugRelatedField(slug_field="engine_id", read_only=True)

    class Meta:
        model = EngineHealth
        fields = ("engine", "state", "code", "reason", "since", "until", "slow_start_from", "slow_start_s")


class PlanShape(ModelShape):
    """One plan of an automation."""

    figures = serializers.DictField(read_only=True)
    plan = serializers.DictField(read_only=True)
    outcome = serializers.DictField(read_only=True)
    reasons = serializers.ListField(child=serializers.DictField(), read_only=True)

    class Meta:
        model = PlanRecord
        fields = (
            "id",
            "pool",
            "job",
            "at",
            "mode",
            "changes",
            "summary",
            "reasons",
            "figures",
            "plan",
            "outcome",
        )


class ActionShape(ModelShape):
    """One action to an actuator."""

    class Meta:
        model = EngineAction
        fields = (
            "key",
            "pool",
            "kind",
            "role",
            "engine_name",
            "state",
            "by",
            "why",
            "says",
            "attempts",
            "requested_at",
            "deadline_at",
            "finished_at",
        )


class AutomationState(serializers.Serializer):
    """One automation of a pool: its mode and the result of its last round."""

    job = serializers.CharField()
    mode = serializers.CharField(help_text="off, advise or act, from the live policy.")
    in_force = serializers.CharField(help_text="The same, or frozen or override.")
    at = serializers.DateTimeField(allow_null=True, help_text="Time of its last evaluation.")
    reason = serializers.CharField(help_text="Reasons for its action, or for none.")
    plan = serializers.DictField()
    advice = serializers.CharField(help_text="Its advice, to send to follow_advice; empty: none.")


class PoolAutomationShape(serializers.Serializer):
    """Current automation state of a pool."""

    pool = serializers.CharField()
    frozen = serializers.BooleanField()
    override_engines = serializers.IntegerField(allow_null=True)
    override_prefill = serializers.IntegerField(allow_null=True)
    override_until = serializers.DateTimeField(allow_null=True)
    changed_at = serializers.DateTimeField(allow_null=True)
    changed_by = serializers.CharField()
    why = serializers.CharField()
    engines = serializers.DictField(
        child=serializers.IntegerField(), help_text="Desired, running, failed, open_actions."
    )
    automations = AutomationState(many=True)
    actions = ActionShape(many=True)


class Override(ChangeBody):
    """Wanted number of engines, and the end of the override."""

    until = serializers.DateTimeField(help_text="At most seven days ahead.")
    engines = WholeNumber(min_value=1, max_value=MAX_ENGINES, required=False, allow_null=True, default=None)
    prefill = WholeNumber(
        min_value=1,
        max_value=MAX_ENGINES,
        required=False,
        allow_null=True,
        default=None,
        help_text="Prefill engines.",
    )


class Following(ChangeBody):
    """Advice to carry out."""

    job = serializers.ChoiceField(choices=ADVISING, help_text="Automation whose advice to follow.")
    advice = Text(max_length=4000, help_text="Advice, as returned by the pool's automation.")
