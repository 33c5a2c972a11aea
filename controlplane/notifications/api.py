"""`/api/v1/notification_channels`, `notification_routes`, `silences`, `alert_rules`, and the log of messages."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.incidents.rules import STATES
from controlplane.notifications.changing import CHANNELS, ROUTES, SILENCES, try_channel
from controlplane.notifications.models.notification import (
    NotificationChannel,
    NotificationRoute,
    NotificationSend,
    SendState,
)
from controlplane.notifications.planned import rules_with_channels
from controlplane.platform.api.listing import Listing, exact, moment, one_of
from controlplane.platform.api.resource_bodies import ResourceShape, object_views
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape
from controlplane.platform.api.views import ApiView, Listed, Verb, by_method


class ChannelShape(ResourceShape):
    """A receiver of notifications."""

    class Meta:
        model = NotificationChannel


class RouteShape(ResourceShape):
    """Which events a channel gets."""

    class Meta:
        model = NotificationRoute


class SendShape(ModelShape):
    """One message of one channel."""

    channel = serializers.SlugRelatedField(slug_field="slug", read_only=True)

    class Meta:
        model = NotificationSend
        fields = (
            "channel", "change", "event", "incident", "pool", "title", "text", "at", "state", "note", "attempts",
            "due_at", "ended_at",
        )  # fmt: skip


class NotificationsView(Listed):
    """List messages, newest first."""

    noun = "notifications"
    shape = SendShape
    whole_fleet = True
    rows = staticmethod(lambda _actor: NotificationSend.objects.select_related("channel"))
    listing = Listing(
        {"at": ("at", "pk")},
        "-at",
        {
            "state": one_of("state", SendState.values, "State."),
            "channel": exact("channel__slug", "Id of the channel."),
            "since": moment("at__gte", "Changes at this time or later."),
        },
    )


NotificationChannelsView, OneNotificationChannel = object_views(CHANNELS, "notification channel", shape=ChannelShape)


class NotificationChannelTest(Verb):
    """Send a test message to the channel, and return it with the result."""

    resource = CHANNELS
    shape = ChannelShape
    bodies = by_method(POST=ChangeBody)

    @override
    def carry_out(self, thing: Any, **asked: Any) -> Any:
        """Send the message, and return the channel."""
        try_channel(thing, **asked)
        return thing


NotificationRoutesView, OneNotificationRoute = object_views(
    ROUTES, "notification route", ("channel", exact("channel__slug", "Id of the channel.")), shape=RouteShape
)
SilencesView, OneSilence = object_views(SILENCES, "silence", ("pool", exact("pool", "Id of the pool.")))


class AlertRuleShape(serializers.Serializer):
    """A rule by which an incident opens or Prometheus alerts, and its state now."""

    name = serializers.CharField(source="rule.name")
    title = serializers.CharField(source="rule.title")
    condition = serializers.CharField(source="rule.condition")
    severity = serializers.CharField(source="rule.severity")
    prometheus_alert = serializers.CharField(source="rule.alert", help_text="Empty: only Headway evaluates it.")
    state = serializers.ChoiceField(STATES, help_text="external: only Prometheus evaluates it.")
    since = serializers.DateTimeField(allow_null=True)
    subjects = serializers.ListField(child=serializers.CharField(), help_text="Engines, jobs, or pools.")
    incident = serializers.IntegerField(allow_null=True, help_text="The last incident with it.")
    fired_at = serializers.DateTimeField(allow_null=True)
    channels = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()), help_text="Channel: its pools; none: all pools."
    )


class AlertRulesShape(serializers.Serializer):
    """All rules."""

    results = AlertRuleShape(many=True)


class AlertRulesView(ApiView):
    """The rules of incidents and of Prometheus."""

    noun = "alert rules"
    shape = AlertRulesShape
    whole_fleet = True
    says = by_method(GET="List the rules of incidents and alerts with their states.")

    def get(self, request: Request) -> Response:
        """Return the table."""
        return self.show({"results": rules_with_channels(timezone.now())})
