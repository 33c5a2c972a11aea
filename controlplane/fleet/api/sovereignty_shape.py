"""Sovereignty rules on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.platform.api.strict_fields import Change, Input, Text, Truth
from routing.regions.sovereignty import MAX_NAMES, MAX_RULES

DEFAULTS = ("allow", "deny")


def _names(help_text: str) -> serializers.ListField:
    return serializers.ListField(child=Text(max_length=64), default=list, max_length=MAX_NAMES, help_text=help_text)


class RuleShape(Input):
    """One rule; the first that matches a hop decides about it."""

    name = Text(max_length=80, help_text="What decision records quote.")
    tenants = _names("Tenants whose requests it concerns; empty: all.")
    from_regions = _names("Regions of first contact; empty: all.")
    to_regions = _names("Regions that would serve the request; empty: all.")
    allow = Truth(help_text="Whether these hops are allowed.")
    note = Text(max_length=500, allow_blank=True, default="", help_text="Why the rule exists.")


class SovereigntyShape(serializers.Serializer):
    """The rules in force."""

    default = serializers.ChoiceField(DEFAULTS, source="document.default", help_text="Where no rule matches.")
    rules = RuleShape(many=True, source="document.rules")
    revision = serializers.IntegerField()


class SovereigntyChange(Change):
    """The whole document."""

    default = serializers.ChoiceField(DEFAULTS, default="allow", help_text="Where no rule matches.")
    rules = serializers.ListField(child=RuleShape(), default=list, max_length=MAX_RULES)
