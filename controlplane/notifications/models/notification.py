"""Channels, routes, and silences, and each message of a channel with its state."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from typing_extensions import override

from controlplane.platform.resource.declared_field import FieldAccess, TextList, declared
from controlplane.platform.revisions import RevisedModel

ADDRESS_ENV = r"^HEADWAY_NOTIFY_[A-Z0-9_]{1,40}$"
"""Pattern of variables that a channel can name for its address. No other variable is read for an admin of the API."""
_SLUG_HELP = "Letters, digits, - and _; it never changes."
_CLOCK = RegexValidator(r"^([01][0-9]|2[0-3]):[0-5][0-9]$", "Write a time such as 22:00.")


class NotifiedEvent(models.TextChoices):
    """What a route sends."""

    OPENED = "opened", "Incident opened"
    WORSE = "worse", "Incident got worse"
    CLOSED = "closed", "Incident closed"
    BUDGET = "budget", "Budget used up"
    CANARY = "canary", "Canary aborted"


class Severity(models.TextChoices):
    """How bad an event is."""

    WARNING = "warning", "Warning: all events"
    CRITICAL = "critical", "Critical: requests miss their objective"


class SendState(models.TextChoices):
    """What became of a message of one channel. A message is never sent again once it may have arrived."""

    WAITING = "waiting", "Waiting"
    HELD = "held", "Held back"
    CLAIMED = "claimed", "Sending"
    SENT = "sent", "Sent"
    RETRYING = "retrying", "Retrying"
    GIVEN_UP = "given_up", "Given up"
    SILENCED = "silenced", "Silenced"
    UNKNOWN = "unknown", "Unknown"


def every_event() -> list[str]:
    """Return the events of a route that names none."""
    return list(NotifiedEvent.values)


class NotificationChannel(RevisedModel):
    """A receiver of messages. Its address is a secret of the environment: neither stored nor shown."""

    slug = declared(
        models.SlugField(max_length=64, unique=True), "Id", _SLUG_HELP, access=FieldAccess.FIXED, example="pager"
    )
    name = declared(models.CharField(max_length=80), "Name", example="Pager, on call")
    address_env = declared(
        models.CharField(
            max_length=64, validators=[RegexValidator(ADDRESS_ENV, "Use HEADWAY_NOTIFY_ and A-Z, 0-9, _.")]
        ),
        "Address variable",
        "Environment variable of the jobs process (or its _FILE variant) with the receiver’s Apprise URL.",
        example="HEADWAY_NOTIFY_MAIN",
    )
    tested_at = models.DateTimeField(null=True, blank=True)
    test_result = models.CharField(max_length=200, blank=True, default="")
    """Result of the last test; empty: none yet."""

    class Meta:
        ordering = ("slug",)


class NotificationRoute(RevisedModel):
    """Which events a channel gets, and when."""

    slug = declared(
        models.SlugField(max_length=64, unique=True), "Id", _SLUG_HELP, access=FieldAccess.FIXED, example="on-call"
    )
    channel = declared(
        models.ForeignKey(NotificationChannel, on_delete=models.PROTECT, related_name="routes"),
        "Channel",
        "Id of the channel.",
    )
    events = declared(
        models.JSONField(default=every_event),
        "Events",
        "Events to send.",
        items=TextList(len(NotifiedEvent), 1, 16, tuple(NotifiedEvent.values), ticked=True),
    )
    severity = declared(
        models.CharField(max_length=8, choices=Severity.choices, default=Severity.WARNING),
        "Minimum severity",
        "Events below it are not sent.",
    )
    pools = declared(
        models.JSONField(default=list, blank=True),
        "Pools",
        "Ids of pools; empty: all pools and the whole fleet.",
        items=TextList(50, length=64, ticked=True),
    )
    repeat_min = declared(
        models.PositiveIntegerField(default=30, validators=[MaxValueValidator(1440)]),
        "Repeat",
        "Interval of repeats while an incident is open and not acknowledged; 0: none.",
        unit="min",
    )
    quiet_from = declared(
        models.CharField(max_length=5, blank=True, default="", validators=[_CLOCK]),
        "Quiet from",
        "Messages wait from this time of day until the quiet hours end; empty: no quiet hours.",
        example="22:00",
    )
    quiet_to = declared(
        models.CharField(max_length=5, blank=True, default="", validators=[_CLOCK]), "Quiet until", example="07:00"
    )
    time_zone = declared(
        models.CharField(max_length=64, default="UTC"),
        "Time zone",
        "Of the quiet hours, by its IANA name.",
        example="Europe/Berlin",
    )

    class Meta:
        ordering = ("slug",)


class Silence(RevisedModel):
    """Messages that are not sent until a time. An empty field matches every message."""

    slug = declared(
        models.SlugField(max_length=64, unique=True), "Id", _SLUG_HELP, access=FieldAccess.FIXED, example="upgrade"
    )
    pool = declared(models.CharField(max_length=64, blank=True, default=""), "Pool", "Id of the pool; empty: any.")
    incident = declared(
        models.PositiveIntegerField(null=True, blank=True), "Incident", "Number of the incident; empty: any."
    )
    event = declared(
        models.CharField(max_length=8, choices=[("", "Any event"), *NotifiedEvent.choices], blank=True, default=""),
        "Event",
        "Messages of this event are silenced; empty: of any.",
    )
    until = declared(models.DateTimeField(), "Until", "UTC time at which it ends.", example="2026-12-01T06:00:00Z")
    reason = declared(models.CharField(max_length=200), "Reason", "Shown beside each silenced message.")

    class Meta:
        ordering = ("-until", "slug")


class NotificationSend(models.Model):
    """One message for one channel. The row is claimed in a committed write before anything is sent."""

    channel = models.ForeignKey(NotificationChannel, on_delete=models.CASCADE, related_name="sends")
    change = models.CharField(max_length=80)
    """Name of the change of state, such as entry:17, audit:9, or repeat:4:2."""
    event = models.CharField(max_length=8, choices=NotifiedEvent.choices)
    incident = models.PositiveIntegerField(null=True, blank=True)
    pool = models.CharField(max_length=64, blank=True)
    title = models.CharField(max_length=250)
    text = models.CharField(max_length=1000, blank=True)
    at = models.DateTimeField()
    """When the change of state was taken."""
    state = models.CharField(max_length=8, choices=SendState.choices)
    note = models.CharField(max_length=200, blank=True)
    """Why it waits, is held back, or failed."""
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField()
    """When it is sent next; for a claimed row, when it was claimed."""
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("change", "channel"), name="notification_once_per_change"),
            models.CheckConstraint(condition=models.Q(state__in=SendState.values), name="notification_state_known"),
        )
        indexes = (
            models.Index(fields=("state", "due_at"), name="notification_due"),
            models.Index(fields=("incident",), name="notification_by_incident"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.change} to {self.channel}"
