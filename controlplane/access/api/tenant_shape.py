"""Tenants on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.fleet.topology import MAX_MODELS
from controlplane.platform.api.strict_fields import Change, Text
from controlplane.platform.models.tenant import Tenant


class TenantShape(serializers.ModelSerializer):
    """Whoever owns API keys. `unsalted`: its cached blocks carry no salt, as the first tenant's."""

    served_models = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Tenant
        fields = ("slug", "name", "served_models", "unsalted", "revision")
        read_only_fields = fields


class TenantChange(Change):
    """What of a tenant can change."""

    name = Text(max_length=120)
    served_models = serializers.ListField(
        child=Text(),
        max_length=MAX_MODELS,
        required=False,
        help_text="Served models that its keys may use; empty: all. Omitted: unchanged.",
    )


class NewTenant(TenantChange):
    """A tenant to be."""

    slug = Text(max_length=64, help_text="Its id; never changes.")
