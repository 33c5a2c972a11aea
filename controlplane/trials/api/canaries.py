"""`/api/v1/canaries`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.etags import expected_revision
from controlplane.platform.api.filters import exact, one_of
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.strict_fields import Change
from controlplane.platform.field_problems import problem
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import visible_policies
from controlplane.trials.api.canary_shape import CanaryShape, GoOn, NewCanary
from controlplane.trials.api.named_version import version_of
from controlplane.trials.canary import lifecycle as canaries
from controlplane.trials.canary.end import abort
from controlplane.trials.canary.evidence import Evidence
from controlplane.trials.models.canary import CanaryState


class Canaries(ApiView):
    """All canaries, and new ones."""

    noun = "canaries"
    shape = CanaryShape
    bodies = by_method(POST=NewCanary)
    answers = by_method(POST=(201, CanaryShape))
    has_etag = True
    listing = Listing(
        {"started_at": ("started_at", "pk")},
        "-started_at",
        {
            "policy": exact("policy__slug", "Slug of the policy."),
            "state": one_of("state", CanaryState.values, "State."),
        },
    )

    def get(self, request: Request) -> Response:
        """List canaries, the newest first."""
        return self.show_page(canaries.visible_canaries(self.actor))

    def post(self, request: Request) -> Response:
        """Give a version or a pool a share of the sessions; 409 where a canary of the policy runs already."""
        body = self.body()
        why = taken_why(body)
        tried = self._tried(*(body.pop(name, None) for name in ("policy", "version", "pool")))
        return self.show(canaries.start_canary(tried, actor=self.actor, why=why, **body), 201)

    def _tried(self, policy: str | None, version: int | None, pool: str | None) -> PolicyVersion | Pool:
        if pool is not None:
            if policy is not None or version is not None:
                raise problem("pool", "Send either a pool, or a policy and a version.")
            found = visible_pools(self.actor).filter(slug=pool).first()
            if found is None:
                raise problem("pool", "No such pool.")
            return found
        of_policy = visible_policies(self.actor).filter(slug=policy or "").first()
        if of_policy is None:
            raise problem("policy", "No such policy.")
        if version is None:
            raise problem("version", "This field is required.")
        return version_of(of_policy, "version", version)


class _OfCanary(ApiView):
    noun = "canaries"
    shape = CanaryShape
    has_etag = True

    def turn(self, key: str, verb: Callable[..., Any]) -> Response:
        """Carry out a verb of controlplane.trials.canary.lifecycle."""
        found = canaries.visible_canaries(self.actor).get(key=key)
        expected = expected_revision(self.request, found, required=False)
        body = self.body()
        more = {"evidence": Evidence.WAIVED} if body.pop("force", False) else {}
        return self.show(verb(found, actor=self.actor, expected=expected, why=taken_why(body), **more))


class OneCanary(_OfCanary):
    """One canary."""

    def get(self, request: Request, *, canary: str) -> Response:
        """Return the canary; its ETag stands for its course, the look within moves on without it."""
        found = canaries.visible_canaries(self.actor).get(key=canary)
        return Response(self.represented(found), headers={"ETag": f'W/"{found.revision}"'})


class CanaryStep(_OfCanary):
    """The next step of one canary."""

    bodies = by_method(POST=GoOn)

    def post(self, request: Request, *, canary: str) -> Response:
        """Give it its next share; 409 names the evidence that is missing. If-Match is heeded where it is sent."""
        return self.turn(canary, canaries.take_step)


class CanaryPromotion(_OfCanary):
    """The good end of one canary."""

    bodies = by_method(POST=GoOn)

    def post(self, request: Request, *, canary: str) -> Response:
        """Publish its version for all sessions, or keep the pool's share; 409 names the evidence that is missing.

        If-Match is heeded.
        """
        return self.turn(canary, canaries.promote)


class CanaryAbort(_OfCanary):
    """The other end of one canary."""

    bodies = by_method(POST=Change)

    def post(self, request: Request, *, canary: str) -> Response:
        """Give all sessions back to the live version or the other pools; If-Match is heeded where it is sent."""
        return self.turn(canary, abort)
