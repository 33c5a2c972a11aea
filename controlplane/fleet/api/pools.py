"""`/api/v1/pools`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import KeySource, Pool, PoolMode
from controlplane.fleet.resources import POOLS
from controlplane.platform.api.listing import Listing, contains, exact, one_of
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body
from controlplane.platform.api.strict_fields import ModelShape, Truth
from controlplane.platform.api.views import Changeable, Creatable, Deletable, Objects, by_method
from controlplane.platform.field_problems import problem


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


class PoolShape(ResourceShape):
    """Engines of one served model in one region, under one policy."""

    learned_costs = LearnedCostShape(many=True, read_only=True)

    class Meta:
        model = Pool


PoolChange = change_body(Pool)
NewPool = new_body(
    Pool,
    mode=serializers.ChoiceField(
        choices=PoolMode.choices, default=PoolMode.ROUTE, help_text="observe: no requests are routed here."
    ),
    isolated=Truth(
        required=False,
        help_text="Isolate tenants' caches with a salt that Headway derives. Omitted: isolated once there are two "
        "tenants.",
    ),
)
_SAY_THE_MODE = 'This pool observes, and a PUT without mode would make it route; send "mode": "observe" or "route".'


class _Pools(Objects):
    resource = POOLS
    shape = PoolShape


class Pools(_Pools, Creatable):
    """List pools, or create one."""

    says = by_method(GET="List pools.", POST="Create a pool.")
    bodies = by_method(POST=NewPool)
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


class OnePool(_Pools, Changeable, Deletable):
    """One pool."""

    bodies = by_method(PUT=PoolChange, PATCH=PoolChange)

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
