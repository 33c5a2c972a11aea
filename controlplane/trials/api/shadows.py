"""`/api/v1/shadows`."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.fleet.visibility import visible_pools
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.filters import exact, one_of
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.strict_fields import Change
from controlplane.platform.field_problems import problem
from controlplane.trials.api.named_version import version_of
from controlplane.trials.api.shadow_shape import NewShadow, ShadowShape
from controlplane.trials.models.shadow import ShadowState
from controlplane.trials.shadow.lifecycle import start_shadow, stop_shadow, visible_shadows


class Shadows(ApiView):
    """All shadows, and new ones."""

    noun = "shadows"
    shape = ShadowShape
    bodies = by_method(POST=NewShadow)
    answers = by_method(POST=(201, ShadowShape))
    listing = Listing(
        {"created_at": ("created_at", "pk")},
        "-created_at",
        {
            "pool": exact("pool__slug", "Slug of the pool."),
            "state": one_of("state", ShadowState.values, "State."),
        },
    )

    def get(self, request: Request) -> Response:
        """List shadows, the newest first."""
        return self.show_page(visible_shadows(self.actor))

    def post(self, request: Request) -> Response:
        """Let a draft choose beside the live policy; 409 while another one does so in the pool."""
        body = self.body()
        why = taken_why(body)
        pool = visible_pools(self.actor).select_related("policy__live_version").filter(slug=body["pool"]).first()
        if pool is None:
            raise problem("pool", "No such pool.")
        draft = version_of(pool.policy, "draft", body["draft"])
        limits = {"minutes": body["minutes"], "max_per_s": body["max_per_s"]}
        return self.show(start_shadow(pool, draft, **limits, actor=self.actor, why=why), 201)


class OneShadow(ApiView):
    """One shadow."""

    noun = "shadows"
    shape = ShadowShape

    def get(self, request: Request, *, shadow: int) -> Response:
        """Return the shadow with what is counted by now."""
        return self.show(visible_shadows(self.actor).get(pk=shadow))


class ShadowStop(ApiView):
    """The end of one shadow."""

    noun = "shadows"
    shape = ShadowShape
    bodies = by_method(POST=Change)

    def post(self, request: Request, *, shadow: int) -> Response:
        """End the shadow; 409 where it is over already."""
        found, body = visible_shadows(self.actor).get(pk=shadow), self.body()
        return self.show(stop_shadow(found, actor=self.actor, why=taken_why(body)))
