"""Tenants on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.api.strict_fields import Change, Text
from controlplane.models import Tenant


class TenantShape(serializers.ModelSerializer):
    """Whoever owns API keys."""

    class Meta:
        model = Tenant
        fields = ("slug", "name", "revision")
        read_only_fields = fields


class TenantChange(Change):
    """What of a tenant can change."""

    name = Text(max_length=120)


class NewTenant(TenantChange):
    """A tenant to be."""

    slug = Text(max_length=64, help_text="Its id; never changes.")
