"""API keys on the wire: never their text, except once when one is made, and never their hash."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.fleet.api.pool_shape import Named
from controlplane.platform.api.strict_fields import Change, Text, WholeNumber
from controlplane.platform.models.api_key import SCOPES, USUAL_SCOPES, ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role


class ApiKeyShape(serializers.ModelSerializer):
    """Proof of who sends requests."""

    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), read_only=True)
    pools = serializers.ListField(child=serializers.CharField(), read_only=True)
    origins = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ApiKey
        fields: tuple[str, ...] = (
            "key_id",
            "tenant",
            "name",
            "prefix",
            "scopes",
            "role",
            "pools",
            "rate_per_min",
            "max_in_flight",
            "slo_class",
            "priority_ceiling",
            "origins",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
            "revision",
        )
        read_only_fields: tuple[str, ...] = fields


class CreatedApiKeyShape(ApiKeyShape):
    """A key that was just made, with its text."""

    text = serializers.CharField(
        allow_null=True, help_text="The key, shown only once; null if the answer is a repetition."
    )

    class Meta(ApiKeyShape.Meta):
        fields = (*ApiKeyShape.Meta.fields, "text")
        read_only_fields = fields


class ApiKeyChange(Change):
    """What of an API key can change."""

    name = Text(max_length=120)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=SCOPES), min_length=1, max_length=len(SCOPES), default=USUAL_SCOPES
    )
    role = serializers.ChoiceField(
        choices=Role.choices, default=Role.VIEWER, help_text="Role of the scope manage in the key's pools."
    )
    pools = serializers.ListField(
        child=Text(max_length=64),
        max_length=1000,
        default=list,
        help_text="Pool slugs that the scope manage covers; empty: all.",
    )
    expires_at = serializers.DateTimeField(allow_null=True, default=None)
    rate_per_min = WholeNumber(min_value=1, max_value=1_000_000, allow_null=True, default=None)
    max_in_flight = WholeNumber(min_value=1, max_value=100_000, allow_null=True, default=None)
    slo_class = Text(
        max_length=32,
        allow_blank=True,
        default="",
        help_text="Default SLO class of requests, in pools whose policy has it.",
    )
    priority_ceiling = WholeNumber(
        min_value=-(2**31),
        max_value=2**31 - 1,
        allow_null=True,
        default=None,
        help_text="Most urgent priority allowed; lower goes first. Null: any.",
    )
    origins = serializers.ListField(
        child=Text(max_length=210),
        max_length=32,
        default=list,
        help_text="Web origins whose pages may send advisories with this key's tokens.",
    )


class NewApiKey(ApiKeyChange):
    """An API key to be."""

    tenant = Named(slug_field="slug", queryset=Tenant.objects.all(), help_text="Slug of its tenant.")
