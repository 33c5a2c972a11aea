"""`/api/v1/notification_channels`, `/api/v1/notification_routes`, `/api/v1/silences`, and the log of messages."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from typing_extensions import override

from controlplane.notifications.changing import CHANNELS, ROUTES, SILENCES, try_channel
from controlplane.notifications.models.notification import (
    NotificationChannel,
    NotificationRoute,
    NotificationSend,
    SendState,
)
from controlplane.platform.api.listing import Listing, exact, moment, one_of
from controlplane.platform.api.resource_bodies import ResourceShape, object_views
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape
from controlplane.platform.api.views import Listed, Verb, by_method


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
