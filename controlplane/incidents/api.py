"""`/api/v1/incidents`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from typing_extensions import override

from controlplane.incidents.handling import acknowledge, add_note, close, visible_incidents
from controlplane.incidents.models.incident import Incident, IncidentState
from controlplane.incidents.report import markdown_of, report_of
from controlplane.platform.api.listing import Listing, exact, moment, one_of
from controlplane.platform.api.strict_fields import ChangeBody, Input, ModelShape, Text
from controlplane.platform.api.views import Listed, Objects, ObjectView, Verb, by_method


class IncidentShape(ModelShape):
    """One incident."""

    number = serializers.IntegerField(source="pk", help_text="Its number.")

    class Meta:
        model = Incident
        fields: tuple[str, ...] = (
            "number", "pool", "state", "title", "cause", "certain", "onset", "opened_at", "last_bad_at", "closed_at",
            "closed_by", "acknowledged_at", "acknowledged_by", "revision",
        )  # fmt: skip


class IncidentReportShape(IncidentShape):
    """One incident with its causes, the requests hit, what changed before, and its timeline."""

    report = serializers.SerializerMethodField()
    markdown = serializers.SerializerMethodField()

    class Meta(IncidentShape.Meta):
        fields = (*IncidentShape.Meta.fields, "report", "markdown")

    def get_markdown(self, incident: Incident) -> str:
        """Return the report as a document."""
        return markdown_of(report_of(incident, self.context["actor"]))

    def get_report(self, incident: Incident) -> dict[str, Any]:
        """Return the report, as the JSON export has it."""
        return report_of(incident, self.context["actor"])


class IncidentNote(Input):
    """A note for the timeline."""

    text = Text(max_length=1000, help_text="At most 1,000 characters.")


class _Incidents(Objects):
    noun = "incidents"
    shape = IncidentShape
    rows = staticmethod(visible_incidents)
    field = "pk"
    has_etag = True


class IncidentsView(_Incidents, Listed):
    """List incidents, newest onset first."""

    listing = Listing(
        {"onset": ("onset", "pk")},
        "-onset",
        {
            "state": one_of("state", IncidentState.values, "State."),
            "pool": exact("pool", "Slug of the pool."),
            "cause": exact("cause", "Kind of the likeliest cause."),
            "since": moment("onset__gte", "Incidents that began at this time or later."),
            "until": moment("onset__lt", "Incidents that began before this time."),
        },
    )


class OneIncident(_Incidents, ObjectView):
    """One incident."""

    shape = IncidentReportShape
    # Its report also has what others changed.
    has_etag = False
    says = by_method(GET="Return the incident and its report.")


class _Handling(_Incidents, Verb):
    bodies = by_method(POST=ChangeBody)


class IncidentAcknowledgement(_Handling):
    """Take the incident on. Notifiers stop to repeat it; the first person stays the one."""

    verb = staticmethod(acknowledge)


class IncidentClosure(_Handling):
    """Close the incident by hand. While its trouble lasts, it opens no other incident."""

    verb = staticmethod(close)


class IncidentNotes(_Incidents, Verb):
    """Add a note to the timeline."""

    bodies = by_method(POST=IncidentNote)

    @override
    def carry_out(self, thing: Any, **asked: Any) -> Any:
        """Add the note, and return the incident."""
        add_note(thing, asked.pop("text"), **asked)
        return thing
