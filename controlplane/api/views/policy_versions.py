"""`/api/v1/policies/{slug}/versions`: drafting, publishing, rolling back."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView, by_method, taken_why
from controlplane.api.filters import present
from controlplane.api.listing import Listing
from controlplane.api.shapes.policy import NewPolicyVersion, PolicyVersionShape, Publication, RollBack
from controlplane.models import Policy, PolicyVersion
from controlplane.services import policies
from controlplane.services.visibility import visible_policies


class _VersionView(ApiView):
    noun = "policies"
    shape = PolicyVersionShape

    def policy(self, slug: str) -> Policy:
        """Return the policy."""
        return visible_policies(self.actor).get(slug=slug)

    def version(self, slug: str, number: int) -> PolicyVersion:
        """Return one of its versions."""
        return self.policy(slug).versions.select_related("policy", "author").get(number=number)


class PolicyVersions(_VersionView):
    """The versions of one policy, and new ones."""

    bodies = by_method(POST=NewPolicyVersion)
    answers = by_method(POST=(201, PolicyVersionShape))
    listing = Listing(
        {"number": ("number",)},
        "-number",
        {"published": present("published_at", "Whether it was ever live.")},
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """List versions, the newest first."""
        return self.show_page(self.policy(slug).versions.select_related("policy", "author"))

    def post(self, request: Request, *, slug: str) -> Response:
        """Store a document as the next version; it changes nothing until it is published."""
        return self.once(lambda: self._draft(slug))

    def _draft(self, slug: str) -> Response:
        policy, body = self.policy(slug), self.body()
        return self.show(policies.draft(policy, **body, actor=self.actor), 201)


class OnePolicyVersion(_VersionView):
    """One version."""

    def get(self, request: Request, *, slug: str, number: int) -> Response:
        """Return the version."""
        return self.show(self.version(slug, number))


class PolicyPublication(_VersionView):
    """One version going live."""

    bodies = by_method(POST=Publication)

    def post(self, request: Request, *, slug: str, number: int) -> Response:
        """Make the version live everywhere at once; 412 with the live one when it is not `instead_of`."""
        return self.once(lambda: self._publish(slug, number))

    def _publish(self, slug: str, number: int) -> Response:
        version, body = self.version(slug, number), self.body()
        published = policies.publish_version(
            version, instead_of=body["instead_of"], actor=self.actor, why=taken_why(body)
        )
        return self.show(published)


class PolicyRollBack(_VersionView):
    """One policy going back."""

    bodies = by_method(POST=RollBack)
    answers = by_method(POST=(201, PolicyVersionShape))

    def post(self, request: Request, *, slug: str) -> Response:
        """Publish a copy of an earlier version; 412 with the live one when it is not `instead_of`."""
        return self.once(lambda: self._roll_back(slug))

    def _roll_back(self, slug: str) -> Response:
        policy, body = self.policy(slug), self.body()
        copy = policies.roll_back(
            policy, body["number"], instead_of=body["instead_of"], actor=self.actor, why=taken_why(body)
        )
        return self.show(copy, 201)
