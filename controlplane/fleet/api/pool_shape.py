"""Pools on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.fleet.api.learned_cost_shape import LearnedCostShape
from controlplane.fleet.models.pool import ActuatorKind, KeySource, Pool, PoolMode
from controlplane.fleet.models.region import Region
from controlplane.platform.api.strict_fields import Change, Document, Text, Truth, WholeNumber
from controlplane.policies.models.policy import Policy


class PoolShape(serializers.ModelSerializer):
    """Engines of one served model in one region, under one policy."""

    region = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    policy = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    actuator_settings = serializers.DictField(read_only=True)
    learned_costs = LearnedCostShape(many=True, read_only=True)

    class Meta:
        model = Pool
        fields = (
            "slug",
            "name",
            "region",
            "served_model",
            "key_source",
            "block_tokens",
            "block_bytes",
            "isolated",
            "max_prompt_tokens",
            "weight",
            "policy",
            "mode",
            "actuator",
            "actuator_settings",
            "engine_networks",
            "engine_api_key_env",
            "production",
            "learned_costs",
            "revision",
        )
        read_only_fields = fields


class Named(serializers.SlugRelatedField):
    """Another object by its slug."""

    def to_internal_value(self, data: object) -> object:
        """Return the object; anything but a known slug is wrong."""
        if not isinstance(data, str) or len(data) > 64:
            self.fail("invalid")
        return super().to_internal_value(data)


class PoolChange(Change):
    """What of a pool can change."""

    name = Text(max_length=120)
    region = Named(slug_field="slug", queryset=Region.objects.all(), help_text="Slug of its region.")
    served_model = Text()
    key_source = serializers.ChoiceField(choices=KeySource.choices, default=KeySource.EXACT)
    block_tokens = WholeNumber(min_value=1, max_value=65_536, default=512)
    block_bytes = WholeNumber(min_value=1, max_value=1 << 20, default=2048)
    isolated = Truth(
        required=False,
        help_text="Isolate tenants' caches with a salt that Switchyard derives. Omitted: unchanged; new pools are "
        "isolated once there are two tenants.",
    )
    max_prompt_tokens = WholeNumber(min_value=1, max_value=100_000_000, default=131_072)
    weight = WholeNumber(
        min_value=0,
        max_value=1000,
        default=100,
        help_text="Its part of the requests for the model, relative to other pools that serve it. 0: only if no other "
        "pool has an engine.",
    )
    policy = Named(slug_field="slug", queryset=Policy.objects.all(), help_text="Slug of its policy.")
    mode = serializers.ChoiceField(
        choices=PoolMode.choices,
        required=False,
        help_text="observe: nothing is routed here. Omitted: a routing pool is unchanged; a PUT of an observing pool "
        "must name it, because it would start to route.",
    )
    actuator = serializers.ChoiceField(
        choices=ActuatorKind.choices, default=ActuatorKind.MANUAL, help_text="Starts and stops engines."
    )
    actuator_settings = Document(default=dict, help_text="Depends on the actuator; contains no secret.")
    engine_networks = Text(
        max_length=500,
        required=False,
        allow_blank=True,
        help_text="Networks allowed for its engines, comma-separated; empty: the installation's.",
    )
    engine_api_key_env = Text(
        max_length=64,
        required=False,
        allow_blank=True,
        help_text="Environment variable SWITCHYARD_ENGINE_KEY_… with its engines' key; empty: the installation's.",
    )
    production = Truth(default=True, help_text="Changing the live policy version requires typing a name.")


class NewPool(PoolChange):
    """A pool to be."""

    slug = Text(max_length=64, help_text="Its id; never changes.")
    mode = serializers.ChoiceField(
        choices=PoolMode.choices, default=PoolMode.ROUTE, help_text="observe: nothing is routed here."
    )
