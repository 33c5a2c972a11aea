"""What was learned about the cost of a pool's engines, on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.learned_cost import LearnedCost


class PrefillCostShape(serializers.Serializer):
    """seconds = base + per_token·u + per_token_squared·u·(L − u/2) + per_hit_token·hit (u uncached, L prompt)."""

    base_s = serializers.FloatField()
    per_token_s = serializers.FloatField()
    per_token_squared_s = serializers.FloatField()
    per_hit_token_s = serializers.FloatField()


class DecodeCostShape(serializers.Serializer):
    """seconds of a step = base + per_sequence·batch + per_context_token·context."""

    base_s = serializers.FloatField()
    per_sequence_s = serializers.FloatField()
    per_context_token_s = serializers.FloatField()


class FittedCostShape(serializers.Serializer):
    """The learned figures."""

    prefill = PrefillCostShape()
    decode = DecodeCostShape(allow_null=True, help_text="null: too few decodes.")
    samples = serializers.IntegerField(help_text="Prefills in the fit.")
    error = serializers.FloatField(help_text="Mean relative error of its predictions.")
    policy_error = serializers.FloatField(help_text="Mean relative error of the policy's cost.")
    better = serializers.BooleanField(help_text="Whether a policy with cost: fitted uses it.")
    speeds = serializers.DictField(child=serializers.FloatField(), help_text="Speed of each engine, by its id.")


class LearnedCostShape(serializers.ModelSerializer):
    """What was learned about one kind of engine."""

    fitted = serializers.SerializerMethodField()

    class Meta:
        model = LearnedCost
        fields = ("kind", "fitted", "learned_at")
        read_only_fields = fields

    def get_fitted(self, cost: LearnedCost) -> FittedCostShape:
        """Return the figures."""
        return FittedCostShape(fitted_of(cost)).data  # the schema reads the annotation
