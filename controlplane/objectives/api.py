"""`/api/v1/objectives`."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.objectives.attainment import attainment
from controlplane.objectives.objective import OBJECTIVES, Objective
from controlplane.platform.api.resource_bodies import ResourceShape, object_views


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


ObjectivesView, OneObjective = object_views(OBJECTIVES, "objective", shape=ObjectiveShape)
