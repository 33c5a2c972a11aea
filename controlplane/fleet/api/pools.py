"""`/api/v1/pools`."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet import topology
from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import ActuatorKind, KeySource, Pool, PoolMode
from controlplane.fleet.models.region import Region
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.api.listing import Listing, contains, exact, one_of
from controlplane.platform.api.strict_fields import ChangeBody, Document, ModelShape, Named, Text, Truth, WholeNumber
from controlplane.platform.api.views import ApiView, Changeable, Deletable, by_method
from controlplane.platform.field_problems import problem
from controlplane.platform.role import Role
from controlplane.policies.models.policy import Policy


class PrefillCostShape(serializers.Serializer):
    """seconds = base + per_token·u + per_token_squared·u·(L − u/2) + per_hit_token·hit (u: uncached tokens, L: prompt
    tokens).
    """

    base_s = serializers.FloatField()
    per_token_s = serializers.FloatField()
    per_token_squared_s = serializers.FloatField()
    per_hit_token_s = serializers.FloatField()


class DecodeCostShape(serializers.Serializer):
    """seconds per step = base + per_sequence·batch + per_context_token·context."""

    base_s = serializers.FloatField()
    per_sequence_s = serializers.FloatField()
    per_context_token_s = serializers.FloatField()


class FittedCostShape(serializers.Serializer):
    """The learned cost."""

    prefill = PrefillCostShape()
    decode = DecodeCostShape(allow_null=True, help_text="null: too few decodes.")
    samples = serializers.IntegerField(help_text="Prefills in the fit.")
    error = serializers.FloatField(help_text="Mean relative error of its predictions.")
    policy_error = serializers.FloatField(help_text="Mean relative error of the policy's cost.")
    better = serializers.BooleanField(help_text="Whether a policy with cost: fitted uses it.")
    speeds = serializers.DictField(child=serializers.FloatField(), help_text="Speed of each engine, by its id.")


class LearnedCostShape(ModelShape):
    """Learned cost of one engine kind."""

    fitted = serializers.SerializerMethodField()

    class Meta:
        model = LearnedCost
        fields = ("kind", "fitted", "learned_at")

    def get_fitted(self, cost: LearnedCost) -> FittedCostShape:
        """Return the coefficients."""
        return FittedCostShape(fitted_of(cost)).data  # the schema reads the annotation


class PoolShape(ModelShape):
    """Engines of one served model in one region, under one policy."""

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


class PoolChange(ChangeBody):
    """Writable fields of a pool."""

    name = Text(max_length=120)
    region = Named(slug_field="slug", queryset=Region.objects.all(), help_text="Slug of its region.")
    served_model = Text()
    key_source = serializers.ChoiceField(choices=KeySource.choices, default=KeySource.EXACT)
    block_tokens = WholeNumber(min_value=1, max_value=65_536, default=512)
    block_bytes = WholeNumber(min_value=1, max_value=1 << 20, default=2048)
    isolated = Truth(
        required=False,
        help_text="Isolate tenants' caches with a salt that Headway derives. Omitted: unchanged; new pools are "
        "isolated once there are two tenants.",
    )
    max_prompt_tokens = WholeNumber(min_value=1, max_value=100_000_000, default=131_072)
    weight = WholeNumber(
        min_value=0,
        max_value=1000,
        default=100,
        help_text="Its share of the requests for the model, relative to other pools that serve it. 0: used only if no "
        "other pool has an engine.",
    )
    policy = Named(slug_field="slug", queryset=Policy.objects.all(), help_text="Slug of its policy.")
    mode = serializers.ChoiceField(
        choices=PoolMode.choices,
        required=False,
        help_text="observe: no routing. Omitted: a routing pool is unchanged; a PUT of an observing pool "
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
        help_text="Environment variable HEADWAY_ENGINE_KEY_… with its engines' key; empty: the installation's.",
    )
    production = Truth(default=True, help_text="Changing the live policy version requires typing a name.")


class NewPool(PoolChange):
    """Body of POST /pools."""

    slug = Text(max_length=64, help_text="Its id; never changes.")
    mode = serializers.ChoiceField(
        choices=PoolMode.choices, default=PoolMode.ROUTE, help_text="observe: no requests are routed here."
    )


_SAY_THE_MODE = 'This pool observes, and a PUT without mode would make it route; send "mode": "observe" or "route".'


def _pools(actor: Actor) -> QuerySet[Pool]:
    return visible_pools(actor).select_related("region", "policy")


class Pools(ApiView):
    """List pools, or create one."""

    noun = "pools"
    shape = PoolShape
    bodies = by_method(POST=NewPool)
    changes_need = Role.ADMIN
    has_etag = True
    listing = Listing(
        {"slug": ("slug",), "region": ("region__slug", "slug")},
        "slug",
        {
            "region": exact("region__slug", "Slug of the region."),
            "policy": exact("policy__slug", "Slug of the policy."),
            "served_model": exact("served_model", "Name of the served model."),
            "key_source": one_of("key_source", KeySource.values, "Source of block keys."),
            "name": contains("name", "Part of the name."),
        },
    )

    def get(self, request: Request) -> Response:
        """List pools."""
        return self.show_page(_pools(self.actor).prefetch_related("learned_costs"))

    def post(self, request: Request) -> Response:
        """Create a pool."""
        return self.show(topology.create_pool(**self.body(), actor=self.actor), 201)


class OnePool(Changeable, Deletable):
    """One pool."""

    noun = "pools"
    shape = PoolShape
    rows = staticmethod(_pools)
    changed = staticmethod(topology.change_pool)
    deleted = staticmethod(topology.delete_pool)
    bodies = by_method(PUT=PoolChange, PATCH=PoolChange)
    changes_need = Role.ADMIN

    @override
    def put(self, request: Request, **names: Any) -> Response:
        """Replace all writable values. An omitted value gets its default.

        `mode` is an exception: for an observing pool, a body without it is rejected with 400. Send "observe" or
        "route".
        """
        return super().put(request, **names)

    @override
    def body(self, current: Any = None) -> dict[str, Any]:
        """Return the validated body. Reject a body that omits `mode` for an observing pool."""
        values = super().body(current)
        # The default is to route, and a pool must not begin to route because a body omits the mode.
        if self.request.method == "PUT" and current.mode == PoolMode.OBSERVE and "mode" not in values:
            raise problem("mode", _SAY_THE_MODE)
        return values
