"""One incident, and the entries of its timeline."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.platform.revisions import RevisedModel


class IncidentState(models.TextChoices):
    """Whether the trouble lasts."""

    OPEN = "open", "Open"
    CLOSED = "closed", "Closed"


class Incident(RevisedModel):
    """One episode of trouble. `pool` is no foreign key, because incidents outlive pools; empty: the whole fleet."""

    public_id_field = "pk"

    key = models.CharField(max_length=160, unique=True)
    """Name of the episode in the job's memory, so that no episode is stored twice."""
    pool = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=8, choices=IncidentState.choices, default=IncidentState.OPEN)
    title = models.CharField(max_length=200)
    cause = models.CharField(max_length=32, blank=True)
    """Kind of the likeliest cause; empty: there is no evidence of one."""
    certain = models.BooleanField(default=False)
    """Whether the cause may be stated without "unsure"."""
    onset = models.DateTimeField()
    opened_at = models.DateTimeField()
    last_bad_at = models.DateTimeField()
    """When a symptom was last there: the end of a closed incident."""
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=150, blank=True)
    """Empty: it closed by itself."""
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    detail = models.JSONField(default=dict)
    """The episode (planning.incidents.episodes) without its counters: causes, symptoms, and the requests hit."""

    class Meta:
        ordering = ("-onset", "-id")
        constraints = (
            models.CheckConstraint(condition=models.Q(state__in=IncidentState.values), name="incident_state_known"),
        )
        indexes = (
            models.Index(fields=("state", "-onset"), name="incident_by_state"),
            models.Index(fields=("pool", "-onset"), name="incident_by_pool"),
        )

    @override
    def __str__(self) -> str:
        return f"incident {self.pk}"


class IncidentEntryKind(models.TextChoices):
    """What happened. All but notes are changes of state, of which people may want to be notified."""

    OPENED = "opened", "Opened"
    WORSE = "worse", "Worse"
    CAUSE = "cause", "Cause"
    RETURNED = "returned", "Returned"
    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    CLOSED = "closed", "Closed"
    NOTE = "note", "Note"


class IncidentEntry(models.Model):
    """One entry of a timeline. Written in the transaction of what it describes."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="entries")
    at = models.DateTimeField()
    kind = models.CharField(max_length=16, choices=IncidentEntryKind.choices)
    text = models.CharField(max_length=1000, blank=True)
    by = models.CharField(max_length=150, blank=True)
    """Name of the person or key; empty: the program."""
    taken_at = models.DateTimeField(null=True, blank=True)
    """When a notifier took it (controlplane.incidents.handling.take_state_changes)."""

    class Meta:
        ordering = ("at", "id")
        constraints = (
            models.CheckConstraint(condition=models.Q(kind__in=IncidentEntryKind.values), name="incident_entry_known"),
        )
        indexes = (models.Index(fields=("taken_at", "id"), name="incident_entry_taken"),)

    @override
    def __str__(self) -> str:
        return f"{self.incident}: {self.kind}"
