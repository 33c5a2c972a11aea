"""Regions on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.fleet.models.region import Region
from controlplane.platform.api.strict_fields import Change, Text


class RegionShape(serializers.ModelSerializer):
    """A place where engines stand."""

    class Meta:
        model = Region
        fields = ("slug", "name", "revision")
        read_only_fields = fields


class RegionChange(Change):
    """What of a region can change."""

    name = Text(max_length=120)


class NewRegion(RegionChange):
    """A region to be."""

    slug = Text(max_length=64, help_text="Its id; never changes.")
