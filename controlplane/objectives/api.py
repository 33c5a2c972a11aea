"""`/api/v1/objectives`."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.objectives.attainment import attainment
from controlplane.objectives.objective import OBJECTIVES, Objective
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body
from controlplane.platform.api.views import Changeable, Creatable, Deletable, Objects, by_method


class AttainmentShape(serializers.Serializer):
    """Shares of requests on time, 0..1. None: no requests, or not recorded."""

    hour = serializers.FloatField(allow_null=True)
    six_hours = serializers.FloatField(allow_null=True)
    day = serializers.FloatField(allow_null=True)
    yesterday = serializers.FloatField(allow_null=True, help_text="The same hour a day before.")
    window = serializers.FloatField(allow_null=True, help_text="The last 30 UTC days.")
    budget_left = serializers.FloatField(allow_null=True, help_text="Share of the error budget of 30 days.")


class ObjectiveShape(ResourceShape):
    """The target share of requests on time."""

    attainment = serializers.SerializerMethodField()

    class Meta:
        model = Objective

    @extend_schema_field(AttainmentShape)
    def get_attainment(self, objective: Objective) -> object:
        """Return its attainment now."""
        return AttainmentShape(attainment(objective, timezone.now())).data


class _Objectives(Objects):
    resource = OBJECTIVES
    shape = ObjectiveShape


class ObjectivesView(_Objectives, Creatable):
    """List objectives, or create one."""

    says = by_method(GET="List objectives.", POST="Create an objective.")
    bodies = by_method(POST=new_body(Objective))
    listing = Listing({"slug": ("slug",)}, "slug", {})


class OneObjective(_Objectives, Changeable, Deletable):
    """One objective."""

    bodies = by_method(PUT=change_body(Objective), PATCH=change_body(Objective))
