"""`/api/v1/regions`, `/api/v1/services`, and `/api/v1/sovereignty`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from typing_extensions import override

from controlplane.fleet.models.sovereignty import Sovereignty
from controlplane.fleet.resources import REGIONS, SERVICES
from controlplane.fleet.sovereignty.rules import replace_sovereignty, stored_sovereignty
from controlplane.platform.api.listing import contains
from controlplane.platform.api.resource_bodies import object_views
from controlplane.platform.api.strict_fields import ChangeBody, Input, Text, Truth
from controlplane.platform.api.views import Changeable, by_method
from controlplane.platform.role import Role
from routing.regions.sovereignty import MAX_NAMES, MAX_RULES

RegionsView, OneRegion = object_views(REGIONS, "region", ("name", contains("name", "Part of the name.")))
ServicesView, OneService = object_views(SERVICES, "service")
DEFAULTS = ("allow", "deny")


def _names(help_text: str) -> serializers.ListField:
    return serializers.ListField(child=Text(max_length=64), default=list, max_length=MAX_NAMES, help_text=help_text)


class RuleShape(Input):
    """One rule. The first rule that matches a hop decides."""

    name = Text(max_length=80, help_text="Name in decision records.")
    tenants = _names("Tenants that the rule applies to; empty: all.")
    from_regions = _names("Regions of first contact; empty: all.")
    to_regions = _names("Regions that would serve the request; empty: all.")
    allow = Truth(help_text="Whether these hops are allowed.")
    note = Text(max_length=500, allow_blank=True, default="", help_text="Why the rule exists.")


class SovereigntyShape(serializers.Serializer):
    """The rules in force."""

    default = serializers.ChoiceField(DEFAULTS, source="document.default", help_text="Applies if no rule matches.")
    rules = RuleShape(many=True, source="document.rules")
    revision = serializers.IntegerField()


class SovereigntyChange(ChangeBody):
    """The whole document."""

    default = serializers.ChoiceField(DEFAULTS, default="allow", help_text="Applies if no rule matches.")
    rules = serializers.ListField(child=RuleShape(), default=list, max_length=MAX_RULES)


class SovereigntyRules(Changeable):
    """Rules on which tenants' requests may be forwarded from one region to another."""

    noun = "regions"
    shape = SovereigntyShape
    changed = staticmethod(replace_sovereignty)
    bodies = by_method(PUT=SovereigntyChange, PATCH=SovereigntyChange)
    changes_need = Role.ADMIN
    whole_fleet = True

    @override
    def thing(self, *_args: Any, **_names: Any) -> Sovereignty:
        """Return the only document."""
        return stored_sovereignty()
