"""`/api/v1/shadows`."""

from __future__ import annotations

from typing import Any

import msgspec
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet.visibility import named_pool
from controlplane.platform.api.listing import Listing, exact, one_of
from controlplane.platform.api.strict_fields import ChangeBody, Text, WholeNumber
from controlplane.platform.api.views import Listed, Objects, ObjectView, Verb, by_method, taken_why
from controlplane.trials.api.named_version import version_of
from controlplane.trials.models.shadow import ShadowState
from controlplane.trials.shadow.lifecycle import MOST_MINUTES, start_shadow, stop_shadow, visible_shadows
from controlplane.trials.shadow.reading import ShadowFigures, figures_of

_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


class ShadowShape(serializers.Serializer):
    """One shadow: a draft that decides next to the live policy, and its results so far."""

    id = serializers.IntegerField(source="pk")
    pool = serializers.CharField(source="pool.slug")
    draft = serializers.IntegerField(source="draft.number", help_text="Number of the version.")
    base = serializers.IntegerField(
        source="base.number", help_text="Number of the version it is compared with: the live one."
    )
    observed = serializers.BooleanField(help_text="Compared with another router's choices.")
    state = serializers.CharField(help_text="running, ended or failed.")
    reason = serializers.CharField(help_text="Why it ended.")
    max_per_s = serializers.IntegerField(help_text="Requests compared per second at each gateway.")
    created_at = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="Scheduled end.")
    ended_at = serializers.DateTimeField(allow_null=True)
    author = serializers.CharField(source="author.username", allow_null=True)
    uncompared = serializers.ListField(
        child=serializers.CharField(), help_text="Parts in which the two differ but which a shadow cannot compare."
    )
    result = serializers.DictField(
        help_text="compared, agreed, unbound, left_out; gain_s and gain_hit_tokens (means over all compared); "
        "gain_quantiles_s (of the disagreements); answered, expected_ttft_s and measured_ttft_s (means at their "
        "real engines); cpu_s, cpu_max_s, and learning_cpu_s per choice; engines; disagreements."
    )

    @override
    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Return the shadow with its figures."""
        figures = figures_of(instance)
        instance.uncompared, instance.result = figures.uncompared, _result(figures)
        return super().to_representation(instance)


class NewShadow(ChangeBody):
    """Body of POST /shadows."""

    pool = Text(max_length=64, help_text="Slug of the pool.")
    draft = WholeNumber(min_value=0, max_value=2**31 - 1, help_text="Number of the candidate version.")
    minutes = WholeNumber(
        min_value=1, max_value=MOST_MINUTES, required=False, default=60, help_text="Ends after this time."
    )
    max_per_s = WholeNumber(
        min_value=1, max_value=1000, required=False, default=50, help_text="Requests compared per second and gateway."
    )


def _result(figures: ShadowFigures) -> dict[str, Any]:
    tally = figures.tally
    return {
        "compared": tally.compared,
        "agreed": tally.agreed,
        "unbound": tally.unbound,
        "left_out": tally.left_out,
        "gain_s": figures.mean_gain_s,
        "gain_hit_tokens": figures.mean_gain_hit_tokens,
        "gain_quantiles_s": {name: figures.gain_quantile_s(share) for name, share in _QUANTILES.items()},
        "answered": tally.answered,
        "expected_ttft_s": figures.expected_s,
        "measured_ttft_s": figures.measured_s,
        "cpu_s": figures.cpu_s,
        "cpu_max_s": tally.cpu_max_s,
        "learning_cpu_s": figures.learning_cpu_s,
        "engines": {name: msgspec.to_builtins(share) for name, share in figures.engines},
        "disagreements": msgspec.to_builtins(figures.disagreements),
    }


class _Shadows(Objects):
    noun = "shadows"
    shape = ShadowShape
    rows = staticmethod(visible_shadows)
    field = "pk"


class Shadows(_Shadows, Listed):
    """List shadows, newest first."""

    bodies = by_method(POST=NewShadow)
    listing = Listing(
        {"created_at": ("created_at", "pk")},
        "-created_at",
        {
            "pool": exact("pool__slug", "Slug of the pool."),
            "state": one_of("state", ShadowState.values, "State."),
        },
    )

    def post(self, request: Request) -> Response:
        """Make a draft decide next to the live policy, without effect.

        Responds with 409 while another shadow runs in the pool.
        """
        body = self.body()
        why = taken_why(body)
        pool = named_pool(self.actor, body["pool"])
        draft = version_of(pool.policy, "draft", body["draft"])
        limits = {"minutes": body["minutes"], "max_per_s": body["max_per_s"]}
        return self.show(start_shadow(pool, draft, **limits, actor=self.actor, why=why), 201)


class OneShadow(_Shadows, ObjectView):
    """One shadow."""

    says = by_method(GET="Return the shadow with its current counts.")


class ShadowStop(_Shadows, Verb):
    """End the shadow. Responds with 409 if it has already ended."""

    verb = staticmethod(stop_shadow)
    bodies = by_method(POST=ChangeBody)
